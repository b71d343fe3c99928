// Sizes, strides and offset of the results of view operators, from those of their operand.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "src/frontend/operator_args.h"
#include "src/ir/types.h"

namespace dc::frontend {

// The results of the view `overload` of a tensor of type `self`, one per tensor it returns, by the
// rules of ATen (TensorShape.cpp, ExpandUtils.cpp, TensorUtils.cpp of PyTorch 2.11). None if the
// arguments do not fit the operand: an operator that PyTorch would refuse. Sizes, strides and
// offsets count elements. `before` is the number of elements before the storage's first one that
// the arguments of as_strided count too.
std::optional<std::vector<ir::TensorType>> view_types(std::string_view overload,
                                                      const ir::TensorType& self,
                                                      const OperatorArgs& args, int64_t before);

}  // namespace dc::frontend
