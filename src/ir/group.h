// The ranks that meet in a collective: an attribute of its start.
#pragma once

#include <vector>

#include "src/ir/graph.h"
#include "src/ir/mesh.h"

namespace dc::ir {

// The mesh's axes that a mask holds, in order: the mask as an attribute.
std::vector<int64_t> axes_in(const Mesh& mesh, AxisMask mask);

// Of a collective's start: its attribute group=[axis, ...], all axes without it.
AxisMask group_of(const Node& start);

// Attributes of a start: a value of `elements` elements in shards of `shard` elements for each
// member of `group`, which is named only where it is not the world.
std::vector<Arg> collective_args(const Mesh& mesh, int64_t elements, int64_t shard,
                                 AxisMask group = kAllAxes);

}  // namespace dc::ir
