// Element-wise operators next to what makes their operands.
#pragma once

#include "src/ir/graph.h"

namespace dc::passes {

// Moves each element-wise operator up to directly behind the last of its operands where another
// element-wise operator of its shape and phase makes that, so that both can become one kernel there
// (elementwise_groups.h). Not where its result, which then exists for longer, has more bytes than
// the operands that nothing reads after it, which then exist for less long.
void move_to_operands(ir::Graph& graph);

}  // namespace dc::passes
