// Largest elements and averages of windows over the last two or three dims, and their gradients.
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/pooling_parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/native/operator_rows.h"
#include "runtime/kernel/native/pooling/pooling_call.h"

namespace dc::runtime::kernel::cuda {
namespace {

using native::Call;
using native::Made;

// [batch, channels, dims], the batch may be missing.
PooledTensor pooled(const BoundTensor& tensor, size_t dims) {
  const size_t outer = tensor.sizes.size() - dims;
  PooledTensor made{};
  made.data = tensor.data;
  made.channel = tensor.strides[outer - 1];
  if (outer == 2) made.sample = tensor.strides[0];
  for (size_t d = 0; d < dims; ++d) made.dims[kPooledDims - dims + d] = tensor.strides[outer + d];
  return made;
}

PoolingDim pooled_dim(const native::PooledDim& dim) {
  PoolingDim made{dim.in(), dim.out(), !dim.shape().has_value(), 1, 1, 0, 1, false};
  if (!dim.shape()) return made;
  const native::WindowShape& shape = *dim.shape();
  made.size = shape.size, made.stride = shape.stride;
  made.padding = shape.padding, made.dilation = shape.dilation;
  made.counts_padding = shape.counts_padding;
  return made;
}

Pooling parameters_of(const native::PoolingCall& of) {
  Pooling parameters{};
  for (size_t d = 0; d < kPooledDims; ++d) parameters.dims[d] = pooled_dim(of.windows.dims[d]);
  const size_t outer = of.in.sizes.size() - of.dims;
  parameters.batch = outer == 2 ? of.in.sizes[0] : 1;
  parameters.channels = of.in.sizes[outer - 1];
  parameters.in = pooled(of.in, of.dims);
  parameters.out = pooled(of.out, of.dims);
  if (of.indices) parameters.indices = pooled(*of.indices, of.dims);
  parameters.divisor = of.divisor.value_or(0);
  return parameters;
}

std::string function_of(native::PoolingKind kind) {
  switch (kind) {
    case native::PoolingKind::Largest:
      return "max_pool";
    case native::PoolingKind::LargestGradient:
      return "max_pool_gradients";
    case native::PoolingKind::Average:
      return "average_pool";
    case native::PoolingKind::AverageGradient:
      return "average_pool_gradients";
  }
  return {};
}

// A thread for each element that is made.
Made pooling_kernel(Workshop& workshop, Call& call, int32_t) {
  const auto read = native::read_pooling(call);
  if (!read) return call.made(nullptr);
  const std::string function = function_of(read->kind);
  return workshop.kernel(
      source_for({read->in.dtype}, "dc_" + function, "pooling.h", "Pooling", function),
      workshop.blocks_for(call.output(0).numel()), parameters_of(*read));
}

constexpr auto kPoolingRows =
    native::operator_rows<ModelKernelRow>(native::kPoolingOperators, pooling_kernel);

}  // namespace

std::span<const ModelKernelRow> pooling_kernels() { return kPoolingRows; }

}  // namespace dc::runtime::kernel::cuda
