// Which of the compiler's remarks speak of which instruction.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/plan/plan.h"

namespace dc::runtime {

// A remark speaks of an instruction if it names its module, or a tensor that it reads or writes
// (with or without the tensor's own prefix: "gather.model.w" is also "model.w"). Names without dot,
// underscore and digit do not count.
class Reasons {
 public:
  explicit Reasons(const plan::Plan& plan);
  std::vector<size_t> of(const plan::Instruction& instruction) const;  // remarks, ascending

 private:
  const plan::Plan& plan_;
  std::unordered_map<std::string, std::vector<size_t>> by_word_;
};

}  // namespace dc::runtime
