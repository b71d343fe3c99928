// Groups that read the same large values become one, though neither reads the other.
#pragma once

#include <functional>
#include <vector>

#include "src/ir/graph.h"
#include "src/passes/fuse/elementwise_groups.h"

namespace dc::passes {

// Whether one kernel of the second's and third's members is worth it, which reads what they share
// once.
using SiblingsPay = std::function<bool(const ElementwiseGroup& joined, const ElementwiseGroup& one,
                                       const ElementwiseGroup& other)>;

// Joins what elementwise_groups() found: two groups of one shape and phase without reductions,
// where no one else reads the earlier one's values before the later one runs, and what the earlier
// one reads lives no longer for it, or no other kernel runs in between. `groups` stay in program
// order of their last members.
void join_siblings(const ir::Graph& graph, std::vector<ElementwiseGroup>& groups,
                   const SiblingsPay& pays);

}  // namespace dc::passes
