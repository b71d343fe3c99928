#include "src/frontend/reshape.h"

#include <algorithm>

#include "src/base/checked.h"

namespace dc::frontend {
namespace {

using ir::Shape;
using ir::Strides;
using ir::TensorType;

// Elements of a shape; none if they are too many to count or a size is negative.
std::optional<int64_t> count(const Shape& shape) {
  std::optional<int64_t> product = 1;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    product = product ? base::checked_mul(*product, size) : std::nullopt;
  }
  return product;
}

// A shape in which one size may be -1: whatever is left of `elements`.
std::optional<Shape> inferred(Shape shape, int64_t elements) {
  const auto open = std::find(shape.begin(), shape.end(), -1);
  if (open != shape.end()) {
    *open = 1;
    const auto others = count(shape);
    if (!others || *others == 0 || elements % *others != 0) return std::nullopt;
    *open = elements / *others;
  }
  return count(shape) == elements ? std::optional<Shape>(std::move(shape)) : std::nullopt;
}

Strides strides_of_empty(const Shape& shape) {
  Strides strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) {
    strides[i - 1] = std::max<int64_t>(shape[i], 1) * strides[i];
  }
  return strides;
}

// computeStride_impl: dims of `self` that lie without gaps form a chunk, and the new dims must
// split the chunks one by one.
std::optional<Strides> strides_of_view(const TensorType& self, const Shape& shape) {
  if (self.shape.empty()) return Strides(shape.size(), 1);
  if (self.numel() == 0) return self.shape == shape ? self.strides : strides_of_empty(shape);
  Strides strides(shape.size());
  size_t next = shape.size();  // dims from here on have their stride
  int64_t base_stride = self.strides.back(), chunk = 1, split = 1;
  for (size_t i = self.shape.size(); i-- > 0;) {
    chunk *= self.shape[i];
    const bool joins =
        i > 0 && (self.shape[i - 1] == 1 || self.strides[i - 1] == chunk * base_stride);
    if (joins) continue;
    while (next > 0 && (split < chunk || shape[next - 1] == 1)) {
      --next;
      strides[next] = split * base_stride;
      split *= shape[next];
    }
    if (split != chunk) return std::nullopt;
    if (i == 0) break;
    base_stride = self.strides[i - 1];
    chunk = split = 1;
  }
  return next == 0 ? std::optional<Strides>(std::move(strides)) : std::nullopt;
}

}  // namespace

std::optional<TensorType> reshaped(const TensorType& self, const Shape& wanted) {
  auto shape = inferred(wanted, self.numel());
  auto strides = shape ? strides_of_view(self, *shape) : std::nullopt;
  if (!strides) return std::nullopt;
  TensorType result = self;
  result.shape = *std::move(shape);
  result.strides = *std::move(strides);
  return result;
}

bool same_places(const TensorType& a, const TensorType& b) {
  if (a.shape != b.shape) return false;
  if (a.numel() == 0) return true;
  if (a.offset != b.offset) return false;
  for (size_t i = 0; i < a.shape.size(); ++i) {
    if (a.shape[i] != 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

}  // namespace dc::frontend
