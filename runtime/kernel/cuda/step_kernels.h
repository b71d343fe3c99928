// Kernels of the step's own operators: updates, dropout, sums and scalars.
#pragma once

#include <memory>

#include "runtime/kernel/cuda/workshop.h"
#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::cuda {

// Makes the kernel of an instruction on a stream of the plan.
using StepKernel = native::Made (*)(Workshop& workshop, native::Call& call, int32_t stream);
// Null if there is none of this name.
StepKernel find_step_kernel(std::string_view op);

}  // namespace dc::runtime::kernel::cuda
