// Scratch: how much memory a kernel allocates for itself while it runs. Upper bounds from shapes,
// for use without a profile.
//
// They follow what PyTorch 2.11's CPU kernels allocate at once, as recorded in
// tests/src/cost/scratch_test.cpp: a kernel that needs more makes the runtime take memory on top of
// the plan's and ask for a profile, so a bound may be generous but should not be short.
#pragma once

#include "src/base/units.h"
#include "src/ir/graph.h"

namespace dc::cost {

// 0 for nodes without a kernel and for native kernels, which allocate nothing.
base::Bytes estimate_scratch(const ir::Graph& graph, const ir::Node& node, int threads);

}  // namespace dc::cost
