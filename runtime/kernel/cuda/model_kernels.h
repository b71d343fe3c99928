// Kernels written by hand for the model's operators: sums and means over dims, cross entropy.
#pragma once

#include "runtime/kernel/cuda/step_kernels.h"

namespace dc::runtime::kernel::cuda {

// Null if there is none of an operator.
StepKernel find_model_kernel(std::string_view op);

}  // namespace dc::runtime::kernel::cuda
