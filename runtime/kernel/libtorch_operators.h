// What a plan needs libtorch for, in words.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace dc::runtime::kernel {

// "libtorch is needed for aten.mm.default, aten.add.Tensor and 3 more", and what to do about it if
// the plan takes no operator of the model natively.
std::string libtorch_operators(const plan::Plan& plan);

}  // namespace dc::runtime::kernel
