// dc.linear_cross_entropy: the output layer of a model and its loss, forward and backward.
#pragma once

#include <memory>

#include "runtime/kernel/cuda/products.h"

namespace dc::runtime::kernel::cuda {

// Parts of the logits are products of cuBLASLt, and the kernels of kernels/logits.h are between
// them. src/base/logit_chunks.h says which part exists when, and where the others wait.
base::Result<std::unique_ptr<Kernel>> linear_cross_entropy_kernel(Workshop& workshop,
                                                                  Products& products,
                                                                  native::Call& call,
                                                                  int32_t stream);

}  // namespace dc::runtime::kernel::cuda
