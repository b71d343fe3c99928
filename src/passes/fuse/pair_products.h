// Two products that read the same matrix as one kernel.
#pragma once

#include <cstdint>

#include "src/ir/graph.h"
#include "src/passes/pass.h"

namespace dc::passes {

// Makes one kernel of two products of the same types, of one phase and of one module's children,
// that have the same left or the same right operand, at the place of the later one,
// or of the earlier one if something between reads what that makes. Returns how many pairs there
// are.
int64_t pair_products(ir::Graph& graph, const PassContext& context);

}  // namespace dc::passes
