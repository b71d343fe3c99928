// Element-wise values that the backward phase reads and need not be kept for it.
#pragma once

#include <vector>

#include "src/ir/graph.h"

namespace dc::passes {

// A kernel of the forward phase again, right before what reads its value in the backward phase.
struct MadeAgain {
  ir::NodeId node;
  ir::ValueId original;
};

// A value is made again for each of its readers in the backward phase if these are element-wise
// too, so that they may become one kernel with it, and if what it is made of is there anyway: kept
// for readers that do not come earlier. So the original dies in the forward phase, and nothing
// lives longer. Parameters are left out: a gathered one is not there anyway.
std::vector<MadeAgain> make_again(ir::Graph& graph);

// The readers read the original once more.
void keep_original(ir::Graph& graph, const MadeAgain& again);

}  // namespace dc::passes
