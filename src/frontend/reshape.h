// The same elements of a strided tensor under other sizes.
#pragma once

#include <optional>

#include "src/ir/types.h"

namespace dc::frontend {

// `self` as a view of sizes `shape`, of which one may be -1; none if its elements cannot be had so
// without a copy. The rule is computeStride of PyTorch (ATen/TensorUtils.cpp).
std::optional<ir::TensorType> reshaped(const ir::TensorType& self, const ir::Shape& shape);

// Whether a tensor has each element at the same place by both types: strides of dims with one
// element say nothing, nor do strides and offset of an empty tensor.
bool same_places(const ir::TensorType& a, const ir::TensorType& b);

}  // namespace dc::frontend
