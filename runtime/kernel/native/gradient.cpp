#include "runtime/kernel/native/gradient.h"

#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {
namespace {

DC_VECTOR_CLONES void scale_into(float* __restrict to, const float* __restrict from, float factor,
                                 int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i] * factor;
}
DC_VECTOR_CLONES void scale(float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace

const float* GradientReader::block(int64_t first, int64_t count) {
  const std::byte* const from = data_ + first * bytes_;
  if (convert_ != nullptr) {
    convert_(block_, from, count);
    if (scale_ != 1) scale(block_, scale_, count);
    return block_;
  }
  const auto* own = reinterpret_cast<const float*>(from);
  if (scale_ == 1) return own;
  scale_into(block_, own, scale_, count);
  return block_;
}

}  // namespace dc::runtime::kernel::native
