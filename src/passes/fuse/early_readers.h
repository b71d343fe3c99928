// Element-wise operators that alone read what an earlier one makes, with kernels in between that
// need neither.
#pragma once

#include "src/ir/graph.h"

namespace dc::passes {

// Moves them behind the earlier one, where all else that they read is there too and their value is
// no larger than the one that they read: so both can be one kernel, and no more bytes live in
// between. Whether one was moved.
bool move_readers_early(ir::Graph& graph);

}  // namespace dc::passes
