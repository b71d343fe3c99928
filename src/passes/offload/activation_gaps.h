// Gaps between two uses of a value, in which it may leave the device, and the copies that let it.
// Shared by offload-activations and its published counterpart.
#pragma once

#include <cstdint>
#include <vector>

#include "src/passes/offload/offload_choice.h"

namespace dc::passes {

struct ActivationGap {
  int program = 0;
  ir::ValueId root;
  ir::ValueId source;           // the last value before `from` with exactly the root's bytes
  int32_t from = 0, until = 0;  // positions without the bytes, the second one excluded
  int64_t version = 0;          // equal for gaps of one value without a write between them
};

// All of them, seen through views, by program and value; those of one value in program order.
// Gathered values, inputs, outputs and what copies made have none.
std::vector<ActivationGap> find_activation_gaps(const ir::Step& step,
                                                const schedule::MemoryPressure& pressure);

// Of one gap, with a copy out and a copy in, whose item is `item`.
OffloadCandidate candidate_of(const ir::Step& step, const PassContext& context,
                              const ActivationGap& gap, size_t item);

// Writes placed copies, whose items are indices into `gaps`, into `step`: the one that `pressure`
// is of, or a copy of it.
void write_copies(ir::Step& step, const PassContext& context,
                  const schedule::MemoryPressure& pressure, const std::vector<ActivationGap>& gaps,
                  const std::vector<PlannedCopy>& copies);

}  // namespace dc::passes
