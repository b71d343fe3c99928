// Additions that the product before them makes.
#pragma once

#include <cstdint>

#include "src/ir/graph.h"
#include "src/passes/pass.h"

namespace dc::passes {

// Lets a product whose result nothing but an addition reads, through views that keep its order, add
// the addition's other operand: in its bytes if it is a value of the backward phase that nothing
// else reads. The sum is then rounded once, not twice. Returns how many additions went.
int64_t add_in_products(ir::Graph& graph, const PassContext& context);

}  // namespace dc::passes
