// Which pieces of a plan's state a rank writes into a checkpoint, and what each of its state
// tensors is filled with from one.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/checkpoint/piece.h"
#include "runtime/plan/plan.h"

namespace dc::runtime::checkpoint {

// A range of a value and the elements of a state tensor that hold it.
struct StatePart {
  Piece piece;                // without places in files
  int32_t tensor = -1;        // of the plan
  int64_t tensor_first = 0;   // element of the tensor where the range begins
  bool is_persistent = true;  // of a buffer
};

// Each element of every parameter, master, moment and buffer once over all ranks; buffers that the
// step writes are written by every rank. Carried copies, accumulated gradients (zero between steps)
// and constants are left out: they follow from the rest. Unsupported if the plan does not say what
// its state is for.
base::Result<std::vector<StatePart>> parts_to_save(const plan::Plan& plan, int rank);

// Everything that this rank's state tensors hold of such values: whole where the tensor is whole.
base::Result<std::vector<StatePart>> parts_to_load(const plan::Plan& plan, int rank);

}  // namespace dc::runtime::checkpoint
