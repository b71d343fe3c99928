// Largest elements and averages of windows over the last two or three dims, and their gradients.
#include <optional>

#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/pooling_parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/native/pooling/windows.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using native::Call;
using native::Made;
using MakeWindows = std::optional<native::Pooled> (*)(Call&, const BoundTensor&, const BoundTensor&,
                                                      size_t);

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

// `in` and `out`: tensors of the input's and the output's shape. Nothing if they are refused.
std::optional<Pooling> read_pooling(Call& call, const BoundTensor& in, const BoundTensor& out,
                                    size_t dims, MakeWindows windows) {
  const auto made = windows(call, in, out, dims);
  call.require(in.dtype == out.dtype, "the element types differ");
  call.require(base::is_floating(in.dtype), "pooling takes floating-point numbers");
  if (!made || !call.ok()) return std::nullopt;
  Pooling parameters{};
  for (size_t d = 0; d < kPooledDims; ++d) {
    const native::PooledDim& dim = made->dims[d];
    PoolingDim& to = parameters.dims[d];
    to = {dim.in(), dim.out(), !dim.shape().has_value(), 1, 1, 0, 1, false};
    if (!dim.shape()) continue;
    const native::WindowShape& shape = *dim.shape();
    to.size = shape.size, to.stride = shape.stride;
    to.padding = shape.padding, to.dilation = shape.dilation;
    to.counts_padding = shape.counts_padding;
  }
  const size_t outer = in.sizes.size() - dims;
  parameters.batch = outer == 2 ? in.sizes[0] : 1;
  parameters.channels = in.sizes[outer - 1];
  parameters.in = pooled(in, dims);
  parameters.out = pooled(out, dims);
  return parameters;
}

void add_indices(Call& call, Pooling& parameters, const BoundTensor& indices,
                 const BoundTensor& out, size_t dims) {
  call.require(indices.dtype == DType::I64, "'indices' must be of i64");
  call.same_sizes(indices, out);
  if (call.ok()) parameters.indices = pooled(indices, dims);
}

void read_divisor(Call& call, Pooling& parameters) {
  if (!call.has_value("divisor_override")) return;
  parameters.divisor = call.integer("divisor_override");
  call.require(parameters.divisor != 0, "'divisor_override' is zero");
}

// A thread for each element of `made`.
Made pooling_kernel(Workshop& workshop, Call& call, const std::string& function,
                    const Pooling& parameters, const BoundTensor& made) {
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(
      source_for({made.dtype}, "dc_" + function, "pooling.h", "Pooling", function),
      workshop.blocks_for(made.numel()), parameters);
}

template <size_t kDims, auto kWindows>
Made max_pool(Workshop& workshop, Call& call, int32_t) {
  const BoundTensor in = call.tensor("self"), out = call.output(0);
  auto parameters = read_pooling(call, in, out, kDims, kWindows);
  if (!parameters) return call.made(nullptr);
  call.require(!kWindows(call, in, out, kDims)->has_empty_window(), "a window lies in the padding");
  if (call.has_result(1)) add_indices(call, *parameters, call.output(1), out, kDims);
  return pooling_kernel(workshop, call, "max_pool", *parameters, out);
}

template <size_t kDims, auto kWindows>
Made max_pool_backward(Workshop& workshop, Call& call, int32_t) {
  const BoundTensor in = call.output(0), out = call.tensor("grad_output");
  call.same_sizes(call.tensor("self"), in);
  auto parameters = read_pooling(call, in, out, kDims, kWindows);
  if (!parameters) return call.made(nullptr);
  add_indices(call, *parameters, call.tensor("indices"), out, kDims);
  return pooling_kernel(workshop, call, "max_pool_gradients", *parameters, in);
}

template <size_t kDims, auto kWindows>
Made average_pool(Workshop& workshop, Call& call, int32_t) {
  const BoundTensor in = call.tensor("self"), out = call.output(0);
  auto parameters = read_pooling(call, in, out, kDims, kWindows);
  if (!parameters) return call.made(nullptr);
  read_divisor(call, *parameters);
  return pooling_kernel(workshop, call, "average_pool", *parameters, out);
}

template <size_t kDims, auto kWindows>
Made average_pool_backward(Workshop& workshop, Call& call, int32_t) {
  const BoundTensor in = call.output(0), out = call.tensor("grad_output");
  call.same_sizes(call.tensor("self"), in);
  auto parameters = read_pooling(call, in, out, kDims, kWindows);
  if (!parameters) return call.made(nullptr);
  read_divisor(call, *parameters);
  return pooling_kernel(workshop, call, "average_pool_gradients", *parameters, in);
}

using native::adaptive_windows, native::sliding_windows;
constexpr ModelKernelRow kPoolingRows[] = {
    {"aten._adaptive_avg_pool2d.default", average_pool<2, adaptive_windows>},
    {"aten._adaptive_avg_pool2d_backward.default", average_pool_backward<2, adaptive_windows>},
    {"aten.adaptive_max_pool2d.default", max_pool<2, adaptive_windows>},
    {"aten.adaptive_max_pool2d_backward.default", max_pool_backward<2, adaptive_windows>},
    {"aten.avg_pool2d.default", average_pool<2, sliding_windows>},
    {"aten.avg_pool2d_backward.default", average_pool_backward<2, sliding_windows>},
    {"aten.avg_pool3d.default", average_pool<3, sliding_windows>},
    {"aten.avg_pool3d_backward.default", average_pool_backward<3, sliding_windows>},
    {"aten.max_pool2d_with_indices.default", max_pool<2, sliding_windows>},
    {"aten.max_pool2d_with_indices_backward.default", max_pool_backward<2, sliding_windows>},
    {"aten.max_pool3d_with_indices.default", max_pool<3, sliding_windows>},
    {"aten.max_pool3d_with_indices_backward.default", max_pool_backward<3, sliding_windows>},
};

}  // namespace

std::span<const ModelKernelRow> pooling_kernels() { return kPoolingRows; }

}  // namespace dc::runtime::kernel::cuda
