// What a convolution's instruction says, checked and as oneDNN says it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/kernel/native/call.h"

namespace dc::runtime::kernel::onednn {

// Of one, two or three dims; numbers are one per dim. oneDNN counts the elements that a dilation
// leaves out.
struct ConvolutionShape {
  bool transposed = false;
  int64_t groups = 1;
  std::vector<int64_t> strides, dilations, padding_before, padding_after;
};

// x [batch, channels, ...], weight [out, in / groups, ...] ([in, out / groups, ...] if transposed)
// and y [batch, channels, ...], by the arguments of aten.convolution. Refuses what does not fit.
std::optional<ConvolutionShape> convolution_shape(native::Call& call, const BoundTensor& x,
                                                  const BoundTensor& weight, const BoundTensor& y);

// Sizes and strides as oneDNN takes them.
struct Layout {
  std::vector<int64_t> sizes, strides;
};

// Strides of a tensor whose elements lie row by row, or with its channels innermost, both without
// gaps; nothing for any other.
std::optional<std::vector<int64_t>> dense_strides_of(const BoundTensor& tensor);

// Weights as [groups,] out, in, ...; `strides` are those of the tensor's dims.
Layout layout_of_weight(const BoundTensor& weight, const std::vector<int64_t>& strides,
                        const ConvolutionShape& shape);

}  // namespace dc::runtime::kernel::onednn
