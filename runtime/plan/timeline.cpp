#include "runtime/plan/timeline.h"

#include <algorithm>

namespace dc::runtime::plan {

bool has_timeline(const Plan& plan) {
  return std::all_of(plan.programs.begin(), plan.programs.end(), [](const Program& program) {
    return program.duration_ns.size() == program.instructions.size();
  });
}

ProgramTimeline predicted_timeline(const Plan& plan, const Program& program) {
  ProgramTimeline line;
  std::vector<int64_t> now(std::max<size_t>(plan.streams.size(), 1));
  std::vector<int64_t> given(static_cast<size_t>(plan.events));  // by event
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& in = program.instructions[i];
    int64_t& time = now[static_cast<size_t>(in.stream)];
    const int64_t begin = time;
    if (in.kind == InstructionKind::Wait) {
      time = std::max(time, given[static_cast<size_t>(in.event)]);
    } else if (in.kind == InstructionKind::Signal) {
      given[static_cast<size_t>(in.event)] = time;
    } else {
      time += program.duration_ns[i];
    }
    const bool collective = in.kind == InstructionKind::Collective;
    if (collective) line.collective_ns += time - begin;
    if (in.stream == 0 && (collective || in.kind == InstructionKind::Wait)) {
      line.exposed_ns += time - begin;
    }
    line.begin_ns.push_back(begin);
    line.end_ns.push_back(time);
    line.time_ns = std::max(line.time_ns, time);
  }
  return line;
}

}  // namespace dc::runtime::plan
