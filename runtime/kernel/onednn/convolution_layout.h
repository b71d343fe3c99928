// How the tensors of a convolution lie, as oneDNN says it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/kernel/native/convolution_shape.h"

namespace dc::runtime::kernel::onednn {

// Sizes and strides as oneDNN takes them.
struct Layout {
  std::vector<int64_t> sizes, strides;
};

// Strides of a tensor whose elements lie row by row, or with its channels innermost, both without
// gaps; nothing for any other.
std::optional<std::vector<int64_t>> dense_strides_of(const BoundTensor& tensor);

// Weights as [groups,] out, in, ...; `strides` are those of the tensor's dims.
Layout layout_of_weight(const BoundTensor& weight, const std::vector<int64_t>& strides,
                        const native::ConvolutionShape& shape);

}  // namespace dc::runtime::kernel::onednn
