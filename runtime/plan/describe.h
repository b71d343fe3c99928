// Parts of a plan, as messages and reports name them.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/plan/plan.h"

namespace dc::runtime::plan {

std::string describe_tensor(const Plan& plan, int32_t tensor);  // "tensor %3 (w0)"
std::string describe_slice(const Plan& plan, int32_t slice);    // "slice 4 (device @64+128)"
std::string describe_instruction(const Plan& plan, int32_t program, int32_t index);
std::string instruction_label(const Instruction& instruction);  // "aten.mm.default", "all_gather"

}  // namespace dc::runtime::plan
