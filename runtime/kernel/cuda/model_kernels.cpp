#include "runtime/kernel/cuda/model_kernels.h"

#include <algorithm>

#include "runtime/kernel/cuda/copy_kernels.h"

namespace dc::runtime::kernel::cuda {

StepKernel find_model_kernel(std::string_view op) {
  for (const auto rows :
       {attention_kernels(), batch_norm_kernels(), convolution_kernels(), cross_entropy_kernels(),
        index_kernels(), index_tensor_kernels(), norm_kernels(), order_kernels(), pooling_kernels(),
        reduce_kernels(), scan_kernels(), triangular_kernels()}) {
    const auto row = std::ranges::find(rows, op, &ModelKernelRow::op);
    if (row != rows.end()) return row->make;
  }
  return find_copy_kernel(op);
}

}  // namespace dc::runtime::kernel::cuda
