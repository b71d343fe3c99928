// Element-wise values that are made again by who reads them, and need not be kept for that.
#pragma once

#include <cstdint>
#include <vector>

#include "src/ir/graph.h"

namespace dc::passes {

// An operator again, right before what reads its value.
struct MadeAgain {
  ir::NodeId node;
  ir::ValueId original;
  bool is_late = false;        // in the backward phase, and the original in the forward phase
  int64_t bytes_not_kept = 0;  // until the backward phase; of one copy of each value, 0 of the rest
};

// A value of the forward phase is made again for each of its readers in the backward phase if these
// are element-wise too, so that they may become one kernel with it, and if what it is made of is
// there anyway: kept for readers that do not come earlier. What is not there is kept instead, if it
// is smaller than the value: of a 16-bit value cast to f32 the 16 bits. So the original dies in the
// forward phase, and no more bytes live. Parameters are left out: a gathered one is not there
// anyway.
//
// With more than one operator: through as many as that, one made of the other. And a value
// is made again for element-wise readers of the same phase that cannot be one kernel with what made
// it, if nothing else reads it and less is moved so. (Of a 16-bit residual cast to f32 for a norm,
// only the 16 bits are then stored.) Operators that make one value: at most `most_operators`.
std::vector<MadeAgain> make_again(ir::Graph& graph, int64_t most_operators);

// Erases an element-wise operator whose value nothing reads, and so on to what made its operands.
void erase_unread_operators(ir::Graph& graph, ir::NodeId id);

// The readers read the original once more, if it is still there: one that nothing else read is not.
// Of a late one: what made another may by now come after them. Whether the copy is gone.
bool keep_original(ir::Graph& graph, const MadeAgain& again);

}  // namespace dc::passes
