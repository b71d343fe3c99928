// State that lives outside the device and is there only around its uses. Shared by
// offload-optimizer and offload-parameters.
#pragma once

#include <functional>
#include <vector>

#include "src/passes/offload/offload.h"
#include "src/passes/offload/offload_choice.h"

namespace dc::passes {

// Entries that leave together or not at all. `stays_between`: they stay on the device from their
// first use in a program to their last one; else they also leave between their uses, where the
// budget has no room for them.
struct StateGroup {
  std::vector<int> entries;  // indices into Step::state, that have storage
  bool stays_between = false;
};

// A rule in the place of ours: marks the groups that leave, given in order, and says when copies
// come in.
struct StateRule {
  std::function<void(const schedule::MemoryPressure&, std::vector<OffloadCandidate>&)> choose;
  ReloadPolicy start;
};

// Moves groups outside, to Options::offload_space, until the budget is kept or nothing helps, and
// no more of them; `pressure` is of the step under that budget. Each entry is reloaded before its
// uses and, where they change it, written back after them. Groups with a use that nothing is known
// about stay.
Offloaded offload_state(const ir::Step& step, const PassContext& context,
                        schedule::MemoryPressure pressure, std::vector<StateGroup> groups);
Offloaded offload_state(const ir::Step& step, const PassContext& context,
                        schedule::MemoryPressure pressure, std::vector<StateGroup> groups,
                        const StateRule& rule);

}  // namespace dc::passes
