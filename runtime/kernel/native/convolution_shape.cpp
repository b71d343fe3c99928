#include "runtime/kernel/native/convolution_shape.h"

#include <algorithm>
#include <string>

namespace dc::runtime::kernel::native {
namespace {

// oneDNN and the kernels of GPUs compute places with 32 bits.
constexpr int64_t kMostStep = 1 << 15;

// One number for all dims, or one for each.
std::vector<int64_t> numbers_per_dim(Call& call, std::string_view name, size_t dims,
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

std::optional<ConvolutionShape> convolution_shape(Call& call, const BoundTensor& x,
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
  // What a transposed convolution's image has behind the last place that a filter reaches.
  std::vector<int64_t> beyond(dims - 2, 0);
  if (shape.transposed && call.has_value("output_padding"))
    beyond = numbers_per_dim(call, "output_padding", dims - 2, 0);
  call.require(fits_channels(shape, x, weight, y), "the channels do not fit");
  if (!call.ok()) return std::nullopt;
  for (size_t i = 0; i + 2 < dims; ++i) {
    const int64_t in = (shape.transposed ? y : x).sizes[i + 2];
    const int64_t out = (shape.transposed ? x : y).sizes[i + 2];
    const int64_t reach = (weight.sizes[i + 2] - 1) * shape.dilations[i] + 1;
    const int64_t stride = shape.strides[i], padding = shape.padding_before[i];
    const int64_t steps = in + 2 * padding - reach;
    const bool fits = shape.transposed ? steps == (out - 1) * stride + beyond[i]
                                       : steps >= 0 && steps / stride + 1 == out;
    call.require(fits, "the sizes of the convolution's dims do not fit");
    shape.padding_after.push_back((out - 1) * stride + reach - in - padding);
  }
  return call.ok() ? std::optional(shape) : std::nullopt;
}

}  // namespace dc::runtime::kernel::native
