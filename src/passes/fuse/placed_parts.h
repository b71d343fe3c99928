// Values that are put along a dim next to each other, as aten.cat does, or among zeros, as
// aten.slice_backward does: what a fused kernel says with ranges of indices (base::Expression).
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/expression.h"
#include "src/ir/graph.h"

namespace dc::passes {

// The argument `dim` of an operator on values of so many dims, 0 if it has none; from 0 on unless
// it is malformed.
int64_t named_dim(const ir::Node& node, size_t rank);

struct PlacedPart {
  ir::ValueId value;
  base::IndexRange range;  // where its elements are in the result
};
// Of a native aten.cat of two to eight parts, or an aten.slice_backward of step 1: the parts, each
// smaller than the result and of its element type. Empty for other nodes.
std::vector<PlacedPart> placed_parts(const ir::Graph& graph, const ir::Node& node);

// The element-wise operators of the node's phase that make its parts, each for one part and for
// nothing else, in program order. They can be computed in the shape of the node's result, where
// their values do not matter outside of the part's range. Its operands: what these and the node
// read else.
struct PartMakers {
  std::vector<ir::NodeId> makers;
  std::vector<ir::ValueId> operands;
  int64_t dim = 0;  // along which the parts lie
};
PartMakers part_makers(const ir::Graph& graph, const ir::Node& node,
                       const std::vector<PlacedPart>& parts);

// Whether an operand of an operator whose values have `rank` dims and the indices of the range has
// an element for each of these. Otherwise it has one for all.
bool has_elements_along(const ir::TensorType& operand, const base::IndexRange& range, size_t rank);

}  // namespace dc::passes
