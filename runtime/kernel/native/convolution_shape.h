// What a convolution's instruction says, checked, for every device.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/kernel/native/call.h"

namespace dc::runtime::kernel::native {

// Of one, two or three dims; numbers are one per dim. The padding behind an image is as much of it
// as filters reach.
struct ConvolutionShape {
  bool transposed = false;
  int64_t groups = 1;
  std::vector<int64_t> strides, dilations, padding_before, padding_after;
};

// x [batch, channels, ...], weight [out, in / groups, ...] ([in, out / groups, ...] if transposed)
// and y [batch, channels, ...], by the arguments of aten.convolution. Refuses what does not fit.
std::optional<ConvolutionShape> convolution_shape(Call& call, const BoundTensor& x,
                                                  const BoundTensor& weight, const BoundTensor& y);

}  // namespace dc::runtime::kernel::native
