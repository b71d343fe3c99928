// Refuses to save a state with NaN or infinity, so that a checkpoint is always good to resume
// from. Only buffers may hold infinities.
#pragma once

#include <span>
#include <string>

#include "runtime/checkpoint/state_memory.h"
#include "runtime/checkpoint/state_parts.h"

namespace dc::runtime::checkpoint {

// False if a value of this kind may not hold one of these elements: NaN in any floating type, and
// infinities but in buffers (masks hold them on purpose).
bool is_savable(ValueKind kind, base::DType dtype, std::span<const std::byte> elements);

// This rank's first part that may not be saved, as a description; empty if all may.
base::Result<std::string> find_non_finite(const std::vector<StatePart>& parts,
                                          const StateMemory& memory);

}  // namespace dc::runtime::checkpoint
