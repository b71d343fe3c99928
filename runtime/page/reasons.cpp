#include "runtime/page/reasons.h"

#include <algorithm>

namespace dc::runtime::page {

using plan::InstructionKind;

int32_t& Reasons::parameter_of(int32_t tensor) {
  const int32_t slice = plan_.tensors[static_cast<size_t>(tensor)].slice;
  return parameters_[static_cast<size_t>(slice)];
}

void Reasons::pass_on(int32_t from, int32_t to) {
  const int32_t parameter = parameter_of(from);
  if (parameter_of(to) < 0) parameter_of(to) = parameter;
}

Reasons::Reasons(const plan::Plan& plan)
    : plan_(plan), parameters_(plan.slices.size(), -1), by_parameter_(plan.parameters.size()) {
  for (const plan::StateEntry& entry : plan.state) {
    if (entry.parameter >= 0) parameter_of(entry.tensor) = entry.parameter;
  }
  for (size_t p = 0; p < plan.parameters.size(); ++p) {
    const int32_t gradient = plan.parameters[p].gradient;
    if (gradient >= 0) parameter_of(gradient) = static_cast<int32_t>(p);
  }
  for (const plan::Program& program : plan.programs) {
    for (const plan::Instruction& in : program.instructions) {
      if (in.kind == InstructionKind::Copy) {
        pass_on(in.src, in.dst);
        pass_on(in.dst, in.src);
      }
      if (in.kind != InstructionKind::Collective) continue;
      for (const plan::CollectiveBuffer& b : in.buffers) {
        pass_on(b.input, b.output);
        pass_on(b.output, b.input);
      }
    }
  }
  for (size_t r = 0; r < plan.remarks.size(); ++r) {
    for (const base::RemarkSubject& subject : plan.remarks[r].subjects) {
      const auto id = static_cast<size_t>(subject.id);
      switch (subject.kind) {
        case base::SubjectKind::Parameter:
          by_parameter_[id].push_back(r);
          break;
        case base::SubjectKind::Collective:
          by_collective_[id].push_back(r);
          break;
      }
    }
  }
}

std::vector<size_t> Reasons::of(const plan::Instruction& instruction) const {
  std::vector<size_t> found;
  const auto add = [&](const std::vector<size_t>& remarks) {
    found.insert(found.end(), remarks.begin(), remarks.end());
  };
  if (instruction.kind == InstructionKind::Collective)
    add(by_collective_[static_cast<size_t>(instruction.collective)]);
  for (const auto* list : {&instruction.reads, &instruction.writes}) {
    for (const int32_t id : *list) {
      const auto slice = static_cast<size_t>(plan_.tensors[static_cast<size_t>(id)].slice);
      const int32_t parameter = parameters_[slice];
      if (parameter >= 0) add(by_parameter_[static_cast<size_t>(parameter)]);
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace dc::runtime::page
