// Gathers of parameters that a rank holds a shard of.
#pragma once

#include "src/ir/step.h"

namespace dc::passes {

// For every parameter of `graph` whose state entry is a shard but whose readers still expect the
// whole value: gathers it before its first use in each phase and releases it after the last.
void gather_parameters(ir::Step& step, ir::Graph& graph);

}  // namespace dc::passes
