// Types of values: element type, local shape and strides, and how the value is spread over the
// mesh.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "src/base/dtype.h"
#include "src/base/shape.h"
#include "src/base/small_list.h"
#include "src/base/step_enums.h"
#include "src/base/units.h"
#include "src/ir/mesh.h"

namespace dc::ir {

using base::AxisPlacement;
using base::Bytes;
using base::contiguous_strides;
using base::DType;
using Shape = base::SmallList<int64_t, 4>;  // elements per dim
using Strides = Shape;  // elements between neighbours, per dim; 0 where expanded

struct AxisSharding {
  AxisPlacement placement = AxisPlacement::Replicated;
  int8_t dim = -1;  // only for Shard
  bool operator==(const AxisSharding&) const = default;
};

using Sharding = std::array<AxisSharding, kMaxAxes>;  // entry i belongs to mesh axis i; unused axes
                                                      // are Replicated

struct TensorType {
  DType dtype = DType::F32;
  Shape shape;         // local
  Strides strides;     // local; same rank as shape
  int64_t offset = 0;  // elements from the start of the storage; nonzero for views only
  Sharding sharding{};
  bool operator==(const TensorType&) const = default;

  int64_t numel() const;
  bool is_contiguous() const;
  // Elements of storage reached: 0 if numel() is 0, else offset + 1 + sum((size - 1) * stride).
  int64_t storage_elements() const;
  Bytes bytes() const;  // numel() * element size
};

TensorType contiguous(DType dtype, Shape shape, Sharding sharding = {});

// Along which axes a value is placed so, and the sharding that is so along these only.
AxisMask axes_with(const TensorType& type, AxisPlacement placement);
Sharding sharding_along(AxisMask axes, AxisPlacement placement);
// A part of a value that is flattened and split along some axis.
bool is_flat_shard(const TensorType& type);

}  // namespace dc::ir
