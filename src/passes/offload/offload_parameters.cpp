// offload-parameters: parameters, or the shards a rank keeps of them, live in another memory space
// and visit the device for their uses, for as many as the budget demands.
//
// Which ones: as offload_choice.h says. A parameter comes in before a gather, or before the kernels
// that read it where ranks keep it whole, as late as hides the copy; it stays until its next use
// where there is room. What an update changes goes out again. (DeepCompile's parameter offload
// moves every parameter at every use, and all at the head of the graph.) Kernels and what they read
// stay the same; so do all numbers.
#include "src/passes/offload/offload_state.h"

namespace dc::passes {
namespace {

std::vector<StateGroup> parameter_groups(const ir::Step& step) {
  std::vector<StateGroup> groups;
  for (size_t i = 0; i < step.state.size(); ++i) {
    const ir::StateEntry& entry = step.state[i];
    const bool holds = entry.role == ir::StateRole::Parameter || entry.role == ir::StateRole::Shard;
    if (holds && entry.range_of < 0) groups.push_back({{static_cast<int>(i)}, false});
  }
  return groups;
}

}  // namespace

base::Result<Change> offload_parameters(ir::Step& step, const PassContext& context) {
  return offload_to_fit(
      step, context, "offload-parameters",
      {"parameters-offloaded", "parameters", "visit the device for their uses only"},
      [&](const ir::Step& now, schedule::MemoryPressure pressure) {
        return offload_state(now, context, std::move(pressure), parameter_groups(now));
      });
}

}  // namespace dc::passes
