#include "src/ir/types.h"

namespace dc::ir {

int64_t TensorType::numel() const { return base::numel(shape); }

bool TensorType::is_contiguous() const { return base::is_contiguous(shape, strides); }

int64_t TensorType::storage_elements() const {
  const int64_t reached = base::extent(shape, strides);
  return reached == 0 ? 0 : offset + reached;
}

Bytes TensorType::bytes() const { return Bytes{numel() * base::byte_size(dtype)}; }

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
