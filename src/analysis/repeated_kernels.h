// Kernels of the backward phase that compute what a kernel of the forward phase computed: those
// that recomputation runs again. Two nodes compute the same if they are the same op with the same
// arguments on values that are the same, a gather of one shard in each phase among them.
#pragma once

#include <vector>

#include "src/ir/graph.h"

namespace dc::analysis {

// By node id: the kernel of the forward phase; invalid for nodes that repeat none.
std::vector<ir::NodeId> repeated_kernels(const ir::Graph& graph);

}  // namespace dc::analysis
