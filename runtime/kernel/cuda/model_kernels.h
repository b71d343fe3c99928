// Kernels written by hand for the model's operators: copies, indexing, folds over dims, norms,
// losses, attention, convolutions, pooling, orders.
#pragma once

#include <span>

#include "runtime/kernel/cuda/step_kernels.h"

namespace dc::runtime::kernel::cuda {

struct ModelKernelRow {
  std::string_view op;
  StepKernel make;
};
std::span<const ModelKernelRow> attention_kernels();
std::span<const ModelKernelRow> batch_norm_kernels();
std::span<const ModelKernelRow> convolution_kernels();
std::span<const ModelKernelRow> cross_entropy_kernels();
std::span<const ModelKernelRow> index_kernels();
std::span<const ModelKernelRow> index_tensor_kernels();
std::span<const ModelKernelRow> norm_kernels();
std::span<const ModelKernelRow> order_kernels();
std::span<const ModelKernelRow> pooling_kernels();
std::span<const ModelKernelRow> reduce_kernels();
std::span<const ModelKernelRow> scan_kernels();
std::span<const ModelKernelRow> triangular_kernels();

// One of these, or of copy_kernels.h. Null if there is none of an operator.
StepKernel find_model_kernel(std::string_view op);

}  // namespace dc::runtime::kernel::cuda
