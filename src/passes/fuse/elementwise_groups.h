// Which kernels of a program become one: groups of element-wise operators whose values have one
// shape, and of reductions of these values.
#pragma once

#include <span>
#include <vector>

#include "src/ir/graph.h"

namespace dc::passes {

// Whether a group may have the node: a native element-wise operator with one result that has dims,
// of something else than state alone. What converts a parameter may travel converted.
bool is_fusible(const ir::Graph& graph, const ir::Node& node);

// Members in program order, two or more. All read what comes before the last one, and what they
// make is read after it by others, so the group can take its place.
struct ElementwiseGroup {
  std::vector<ir::NodeId> members;
  size_t reductions = 0;  // of the members
};

// In program order of their last members. An operator joins the group of an operand if both are of
// one phase, the values between them keep their order, and no more bytes stay alive in between
// than the group saves: what dies at the group, were it where its last member is, lives on until
// there. `reductions`: those that may join, each a fusible_reduction(). They are of members' values
// that nothing else reads, fold the same dims, and no member reads theirs. What puts parts in place
// (placed_parts.h) is a member as an operator of its result's shape is, and the makers of its parts
// with it.
std::vector<ElementwiseGroup> elementwise_groups(const ir::Graph& graph,
                                                 std::span<const ir::NodeId> reductions = {});

}  // namespace dc::passes
