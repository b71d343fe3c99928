// A gradient as norm and optimizer read it: f32, scaled, a block at a time, so that it is read from
// memory in its own type and once.
#pragma once

#include "runtime/kernel/native/call.h"
#include "runtime/kernel/native/cast.h"

namespace dc::runtime::kernel::native {

// Elements of a block: a multiple of all vectors and lanes, and few enough for the fastest cache.
inline constexpr int64_t kGradientBlock = 4096;

class GradientReader {
 public:
  GradientReader(const Dense& gradient, const device::Stream& stream, float scale)
      : data_(gradient.on<const std::byte>(stream)),
        bytes_(base::byte_size(gradient.dtype)),
        convert_(gradient.dtype == base::DType::F32 ? nullptr
                                                    : converter(base::DType::F32, gradient.dtype)),
        scale_(scale) {}

  // `count` elements from `first` on, at most kGradientBlock; valid until the next call.
  const float* block(int64_t first, int64_t count);

 private:
  const std::byte* data_;
  int64_t bytes_;    // of an element
  Convert convert_;  // null: it is f32
  float scale_;
  alignas(64) float block_[kGradientBlock];
};

}  // namespace dc::runtime::kernel::native
