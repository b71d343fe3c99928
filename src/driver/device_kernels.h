// Whether the device that a plan is for has its kernels: known when the plan is made, without that
// device.
#pragma once

#include "runtime/plan/plan.h"
#include "src/base/status.h"

namespace dc::driver {

// Unsupported (81), DC7038: names all operators of the plan that its device has no kernels of, each
// with a module that has it. A kernel may still refuse its tensors when it is prepared.
base::Status check_kernels(const runtime::plan::Plan& plan);

}  // namespace dc::driver
