// Results of fused kernels in the order in which they are read.
#pragma once

#include "src/ir/graph.h"

namespace dc::passes {

// Where nothing but a clone without gaps reads a fused kernel's result, through transpositions that
// leave its rows whole: the kernel writes it as the clone would, and the clone goes.
void write_as_read(ir::Graph& graph);

}  // namespace dc::passes
