#include "runtime/kernel/onednn/convolution_shape.h"

#include <algorithm>
#include <string>

#include "src/base/shape.h"

namespace dc::runtime::kernel::onednn {
namespace {

// oneDNN computes places with 32 bits.
constexpr int64_t kMostStep = 1 << 15;

// One number for all dims, or one for each.
std::vector<int64_t> numbers_per_dim(native::Call& call, std::string_view name, size_t dims,
                                     int64_t least) {
  std::vector<int64_t> numbers = call.integers(name);
  if (numbers.size() == 1) numbers.resize(dims, numbers[0]);
  const bool fits = numbers.size() == dims && std::ranges::all_of(numbers, [&](int64_t number) {
                      return number >= least && number <= kMostStep;
                    });
  call.require(fits, "argument '" + std::string(name) + "' does not fit the convolution's dims");
  return numbers;
}

bool fits_channels(const ConvolutionShape& shape, const BoundTensor& x, const BoundTensor& weight,
                   const BoundTensor& y) {
  const BoundTensor& in = shape.transposed ? y : x;
  const BoundTensor& out = shape.transposed ? x : y;
  return x.sizes[0] == y.sizes[0] && shape.groups >= 1 && shape.groups <= in.sizes[1] &&
         in.sizes[1] % shape.groups == 0 && weight.sizes[1] == in.sizes[1] / shape.groups &&
         out.sizes[1] == weight.sizes[0] && weight.sizes[0] % shape.groups == 0;
}

bool has_convolution_dims(const BoundTensor& tensor, size_t dims) {
  return tensor.sizes.size() == dims && std::ranges::all_of(tensor.sizes, [](int64_t size) {
           return size > 0 && size <= INT32_MAX;
         });
}

}  // namespace

std::optional<ConvolutionShape> convolution_shape(native::Call& call, const BoundTensor& x,
                                                  const BoundTensor& weight, const BoundTensor& y) {
  if (!call.ok()) return std::nullopt;
  const size_t dims = x.sizes.size();
  call.require(dims >= 3 && dims <= 5 && has_convolution_dims(x, dims) &&
                   has_convolution_dims(weight, dims) && has_convolution_dims(y, dims),
               "a convolution takes a batch of channels with one to three dims");
  if (!call.ok()) return std::nullopt;
  ConvolutionShape shape;
  shape.transposed = call.integer("transposed", 0) != 0;
  shape.groups = call.integer("groups", 1);
  shape.strides = numbers_per_dim(call, "stride", dims - 2, 1);
  shape.padding_before = numbers_per_dim(call, "padding", dims - 2, 0);
  shape.dilations = numbers_per_dim(call, "dilation", dims - 2, 1);
  call.require(fits_channels(shape, x, weight, y), "the channels do not fit");
  if (!call.ok()) return std::nullopt;
  for (size_t i = 0; i + 2 < dims; ++i) {
    const int64_t in = (shape.transposed ? y : x).sizes[i + 2];
    const int64_t out = (shape.transposed ? x : y).sizes[i + 2];
    const int64_t reach = (weight.sizes[i + 2] - 1) * shape.dilations[i] + 1;
    const int64_t stride = shape.strides[i], padding = shape.padding_before[i];
    const int64_t steps = in + 2 * padding - reach;
    call.require(steps >= 0 && steps / stride + 1 == out,
                 "the sizes of the convolution's dims do not fit");
    shape.padding_after.push_back((out - 1) * stride + reach - in - padding);
    --shape.dilations[i];
  }
  return call.ok() ? std::optional(shape) : std::nullopt;
}

std::optional<std::vector<int64_t>> dense_strides_of(const BoundTensor& tensor) {
  std::vector<int64_t> sizes(tensor.sizes.begin(), tensor.sizes.end());
  if (base::is_contiguous(sizes, tensor.strides)) return base::contiguous_strides(sizes);
  if (sizes.size() < 3) return std::nullopt;
  // Rotates the channels behind the other dims, and their strides back.
  std::vector<int64_t> strides(tensor.strides.begin(), tensor.strides.end());
  std::rotate(sizes.begin() + 1, sizes.begin() + 2, sizes.end());
  std::rotate(strides.begin() + 1, strides.begin() + 2, strides.end());
  if (!base::is_contiguous(sizes, strides)) return std::nullopt;
  strides = base::contiguous_strides(sizes);
  std::rotate(strides.begin() + 1, strides.end() - 1, strides.end());
  return strides;
}

Layout layout_of_weight(const BoundTensor& weight, const std::vector<int64_t>& strides,
                        const ConvolutionShape& shape) {
  Layout layout{{weight.sizes.begin(), weight.sizes.end()}, strides};
  const int64_t per_group = layout.sizes[0] / shape.groups, step = strides[0] * per_group;
  layout.sizes[0] = per_group;
  if (shape.transposed) {
    std::swap(layout.sizes[0], layout.sizes[1]);
    std::swap(layout.strides[0], layout.strides[1]);
  }
  if (shape.groups == 1) return layout;
  layout.sizes.insert(layout.sizes.begin(), shape.groups);
  layout.strides.insert(layout.strides.begin(), step);
  return layout;
}

}  // namespace dc::runtime::kernel::onednn
