// Sizes of tensors with overflow checks. Empty results mean "does not fit in 63 bits".
#pragma once

#include <optional>
#include <span>

#include "runtime/plan/plan.h"
#include "src/base/checked.h"
#include "src/base/shape.h"

namespace dc::runtime::plan {

inline std::optional<int64_t> element_count(std::span<const int64_t> sizes) {
  return base::checked_product(sizes);
}

// Bytes from a tensor's first element to the end of the last one that it reaches; 0 without
// elements.
inline std::optional<int64_t> reach_bytes(const Tensor& tensor) {
  int64_t last = 0;
  for (size_t d = 0; d < tensor.sizes.size(); ++d) {
    if (tensor.sizes[d] == 0) return 0;
    const auto step = base::checked_mul(tensor.sizes[d] - 1, tensor.strides[d]);
    const auto sum = step ? base::checked_add(last, *step) : std::nullopt;
    if (!sum) return std::nullopt;
    last = *sum;
  }
  const auto elements = base::checked_add(last, 1);
  return elements ? base::checked_mul(*elements, base::byte_size(tensor.dtype)) : std::nullopt;
}

// Only for tensors whose element count does not overflow.
inline bool is_contiguous(const Tensor& tensor) {
  return base::is_contiguous(tensor.sizes, tensor.strides);
}

}  // namespace dc::runtime::plan
