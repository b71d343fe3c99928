// When the gradient of a convolution's weight of bf16 is computed in f32: the kernel and the
// compiler's estimate of its scratch memory agree by this header.
#pragma once

#include <cstdint>

#include "src/base/dtype.h"

namespace dc::base {

// oneDNN's products of bf16 take channels in blocks of 16. Of an image's three most of a block is
// padding; its kernels of f32 know images. The filter needs so many positions that the gradient
// takes longer than widening the operands.
inline bool widens_weight_gradient(DType dtype, int64_t channels, int64_t positions) {
  constexpr int64_t kMostChannels = 3, kLeastPositions = 16;
  return dtype == DType::BF16 && channels <= kMostChannels && positions >= kLeastPositions;
}

}  // namespace dc::base
