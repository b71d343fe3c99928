#include "src/ir/types.h"

namespace dc::ir {

int64_t TensorType::numel() const {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

bool TensorType::is_contiguous() const {
  if (numel() == 0) return true;
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;  // the stride of a dim of one element is never used
    if (strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

int64_t TensorType::storage_elements() const {
  if (numel() == 0) return 0;
  int64_t last = offset;
  for (size_t i = 0; i < shape.size(); ++i) last += (shape[i] - 1) * strides[i];
  return last + 1;
}

Bytes TensorType::bytes() const { return Bytes{numel() * base::byte_size(dtype)}; }

Strides contiguous_strides(const Shape& shape) {
  Strides strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= shape[i] > 0 ? shape[i] : 1;
  }
  return strides;
}

TensorType contiguous(DType dtype, Shape shape, Sharding sharding) {
  TensorType type;
  type.dtype = dtype;
  type.strides = contiguous_strides(shape);
  type.shape = std::move(shape);
  type.sharding = sharding;
  return type;
}

AxisMask axes_with(const TensorType& type, AxisPlacement placement) {
  AxisMask axes = 0;
  for (size_t a = 0; a < kMaxAxes; ++a) {
    if (type.sharding[a].placement == placement) axes |= 1U << a;
  }
  return axes;
}

Sharding sharding_along(AxisMask axes, AxisPlacement placement) {
  Sharding sharding{};
  for (size_t a = 0; a < kMaxAxes; ++a) {
    if ((axes >> a & 1) != 0) sharding[a].placement = placement;
  }
  return sharding;
}

bool is_flat_shard(const TensorType& type) {
  return axes_with(type, AxisPlacement::FlatShard) != 0;
}

}  // namespace dc::ir
