// How this folder says that a plan is bad: one sentence, with the cure. Not for other folders.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace dc::runtime::plan {

inline constexpr const char* kCure = "; recompile the model with this dcc";

inline base::Status bad_plan(const char* code, const std::string& what) {
  return base::Status(base::ErrorKind::BadInput, code, "bad plan: " + what + kCure);
}

std::string describe_tensor(const Plan& plan, int32_t tensor);  // "tensor %3 (w0)"
std::string describe_slice(const Plan& plan, int32_t slice);    // "slice 4 (device @64+128)"
std::string describe_instruction(const Plan& plan, int32_t program, int32_t index);
std::string instruction_label(const Instruction& instruction);  // "aten.mm.default", "all_gather"

}  // namespace dc::runtime::plan
