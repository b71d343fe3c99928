// Carries a timeline out: inserts the kernels that run again, moves and adds gathers, and points
// readers at what is made again.
#pragma once

#include "src/passes/recompute/recompute_timeline.h"

namespace dc::passes {

// `graph` is the graph that `program` describes, or a clone of it; it must not have been edited
// since.
void rewrite(ir::Graph& graph, const RecomputeProgram& program, const KeptStorages& kept,
             const Timeline& timeline);

}  // namespace dc::passes
