// Filling a rank's state from a checkpoint of any world size, placement or plan of the same model.
#pragma once

#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/state_memory.h"
#include "runtime/checkpoint/state_parts.h"

namespace dc::runtime::checkpoint {

// As checkpoints name it: "adamw", "sgd".

// Mismatch (76) if the checkpoint is of another model or optimizer, or lacks what the plan's state
// needs; names the first values that do not fit. A checkpoint without a model's digest (made of
// PyTorch's state) is of the model whose names, types and shapes it has.
base::Status check_fits(const plan::Plan& plan, const CheckpointReader& checkpoint,
                        const std::vector<StatePart>& parts);

// Fills the tensors of `parts` (of parts_to_load(), checked by check_fits()), padding with zeros. A
// buffer that each rank has for itself comes from rank `rank` modulo the ranks that saved.
base::Status restore_state(const plan::Plan& plan, CheckpointReader& checkpoint,
                           const std::vector<StatePart>& parts, const StateMemory& memory);

}  // namespace dc::runtime::checkpoint
