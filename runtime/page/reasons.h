// Which of the compiler's remarks speak of which instruction.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "runtime/plan/plan.h"

namespace dc::runtime::page {

// A remark speaks of an instruction in two cases. Either the instruction reads or writes memory of
// a parameter among the remark's subjects: its value, its state, its gradient, or a gathered or
// copied version of them. Or it is a collective of a kind among the subjects. `plan` must outlive
// this.
class Reasons {
 public:
  explicit Reasons(const plan::Plan& plan);

  std::vector<size_t> of(const plan::Instruction& instruction) const;  // remarks, ascending

 private:
  int32_t& parameter_of(int32_t tensor);
  void pass_on(int32_t from, int32_t to);

  const plan::Plan& plan_;
  std::vector<int32_t> parameters_;                // by slice, -1 if it is no parameter's
  std::vector<std::vector<size_t>> by_parameter_;  // remarks
  std::array<std::vector<size_t>, base::kCollectiveKindNames.size()>
      by_collective_;  // by CollectiveKind
};

}  // namespace dc::runtime::page
