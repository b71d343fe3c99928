// offload-optimizer: moments, momentum and f32 masters live in another memory space and visit the
// device for their update, for as many parameters as the budget demands.
//
// Which ones: as offload_choice.h says; what belongs to one parameter moves together. Before the
// update an entry comes in, as late as hides the copy and no earlier than there is room; after it
// the new values go out, during the updates that follow. With micro-batches the last program alone
// updates, so each moves once per step, whatever their number. (DeepCompile, arXiv 2504.09983,
// algorithm 2, evicts at the start of every micro-batch and reloads in its backward pass.) Kernels
// and what they read stay the same; so do all numbers.
#include "src/passes/offload/offload_state.h"

namespace dc::passes {
namespace {

std::vector<StateGroup> optimizer_groups(const ir::Step& step) {
  std::vector<StateGroup> groups(step.parameters.size());
  for (size_t i = 0; i < step.state.size(); ++i) {
    const ir::StateEntry& entry = step.state[i];
    if (!base::is_optimizer_state(entry.role) || entry.parameter < 0 || entry.range_of >= 0)
      continue;
    StateGroup& group = groups[static_cast<size_t>(entry.parameter)];
    group.entries.push_back(static_cast<int>(i));
    group.stays_between = true;
  }
  return groups;
}

}  // namespace

base::Result<Change> offload_optimizer(ir::Step& step, const PassContext& context) {
  return offload_to_fit(step, context, "offload-optimizer",
                        {"optimizer-state-offloaded", "parameters' optimizer states",
                         "visit the device for their update only"},
                        [&](const ir::Step& now, schedule::MemoryPressure pressure) {
                          return offload_state(now, context, std::move(pressure),
                                               optimizer_groups(now));
                        });
}

}  // namespace dc::passes
