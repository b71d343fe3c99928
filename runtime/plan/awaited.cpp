#include "runtime/plan/awaited.h"

#include <algorithm>

namespace dc::runtime::plan {

std::vector<int32_t> awaited(const Plan& plan, const Program& program) {
  std::vector<int32_t> causes(program.instructions.size(), -1);
  std::vector<int32_t> of_event(static_cast<size_t>(plan.events), -1);
  std::vector<int32_t> latest(std::max<size_t>(plan.streams.size(), 1), -1);
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& in = program.instructions[i];
    switch (in.kind) {
      case InstructionKind::Kernel:
      case InstructionKind::Collective:
      case InstructionKind::Copy:
        latest[static_cast<size_t>(in.stream)] = static_cast<int32_t>(i);
        break;
      case InstructionKind::Signal:
        of_event[static_cast<size_t>(in.event)] = latest[static_cast<size_t>(in.stream)];
        break;
      case InstructionKind::Wait:
        causes[i] = of_event[static_cast<size_t>(in.event)];
        break;
    }
  }
  return causes;
}

}  // namespace dc::runtime::plan
