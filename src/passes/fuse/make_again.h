// Element-wise values that the backward phase reads and need not be kept for it.
#pragma once

#include <vector>

#include "src/ir/graph.h"

namespace dc::passes {

// A kernel of the forward phase again, right before what reads its value in the backward phase.
struct MadeAgain {
  ir::NodeId node;
  ir::ValueId original;
  bool is_step = false;  // on the way to one behind it: the original is kept for nothing
};

// A value is made again for each of its readers in the backward phase if these are element-wise
// too, so that they may become one kernel with it, and if what it is made of is there anyway: kept
// for readers that do not come earlier, or made of such values in a few element-wise steps. So the
// original dies in the forward phase, and nothing lives longer. Parameters are left out: a gathered
// one is not there anyway. In order: steps before what is made of them.
std::vector<MadeAgain> make_again(ir::Graph& graph);

// The readers read the originals once more of those that are still nodes of their own. Returns what
// is made again nevertheless.
std::vector<MadeAgain> keep_originals(ir::Graph& graph, const std::vector<MadeAgain>& again);

}  // namespace dc::passes
