// The KernelSignature of a plan's kernel: that of the node which it came from
// (src/ir/kernel_signature.h).
#pragma once

#include "runtime/plan/plan.h"
#include "src/base/kernel_signature.h"

namespace dc::runtime::plan {

// Requires a kernel of a verified plan.
base::KernelSignature signature_of(const Plan& plan, const Instruction& kernel);

}  // namespace dc::runtime::plan
