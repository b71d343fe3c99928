// Slices of element-wise values that become parts of others.
#pragma once

#include <vector>

#include "src/ir/graph.h"

namespace dc::passes {

// In place of an element-wise value of which only slices are read, along one dim, none of them
// overlapping, each for a part of a value (placed_parts.h): the operator on slices of its operands.
// So the kernel that makes the whole value needs no memory for what it is made of, and nothing is
// computed twice. Returns the operators that were made and are still there.
std::vector<ir::NodeId> push_slices(ir::Graph& graph);

}  // namespace dc::passes
