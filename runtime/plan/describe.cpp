#include "runtime/plan/describe.h"

#include "runtime/plan/names.h"

namespace dc::runtime::plan {

std::string describe_tensor(const Plan& plan, int32_t tensor) {
  const auto index = static_cast<size_t>(tensor);
  const std::string id = "tensor %" + std::to_string(tensor);
  return index < plan.tensors.size() ? id + " (" + plan.tensors[index].name + ")" : id;
}

std::string describe_slice(const Plan& plan, int32_t slice) {
  const Slice& s = plan.slices[static_cast<size_t>(slice)];
  return "slice " + std::to_string(slice) + " (" + std::string(name(s.space)) + " @" +
         std::to_string(s.offset) + "+" + std::to_string(s.bytes) + ")";
}

std::string instruction_label(const Instruction& instruction) {
  switch (instruction.kind) {
    case InstructionKind::Kernel:
      return instruction.op;
    case InstructionKind::Collective:
      return std::string(name(instruction.collective));
    case InstructionKind::Copy:
    case InstructionKind::Signal:
    case InstructionKind::Wait:
      return std::string(name(instruction.kind));
  }
  return "?";
}

std::string describe_instruction(const Plan& plan, int32_t program, int32_t index) {
  const Program& p = plan.programs[static_cast<size_t>(program)];
  return "instruction " + std::to_string(index) + " (" +
         instruction_label(p.instructions[static_cast<size_t>(index)]) + ") of program '" + p.name +
         "'";
}

}  // namespace dc::runtime::plan
