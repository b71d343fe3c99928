// Results of element-wise operators in the order in which they are read.
#pragma once

#include "src/ir/graph.h"

namespace dc::passes {

// Where nothing but a clone without gaps reads the result of an element-wise operator, or of one
// that puts parts in their places, through transpositions that leave its rows whole: the operator
// writes it as the clone would, and the clone goes. Before operators become kernels, since a
// profile has kernels with the strides that they have in a plan.
void write_as_read(ir::Graph& graph);

}  // namespace dc::passes
