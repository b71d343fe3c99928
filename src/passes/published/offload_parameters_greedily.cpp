// offload-parameters-greedily: offloading of parameters as DeepCompile does it (DeepSpeed,
// deepspeed/compile/passes/offload_parameters.py). The baseline of offload-parameters.
//
// Every parameter that is gathered leaves, whatever the budget. A rank's shard of it comes in at
// the head of each phase that uses it, for every use anew, and is given up after that use; what an
// update changes goes out again. Copies in ignore times and memory. (DeepCompile
// copies out after every gather, changed or not, and updates elsewhere: here the update is a phase
// like forward and backward.)
#include <algorithm>

#include "src/ir/effects.h"
#include "src/passes/offload/offload_state.h"

namespace dc::passes {
namespace {

std::vector<StateGroup> parameter_groups(const ir::Step& step) {
  std::vector<StateGroup> groups;
  for (size_t i = 0; i < step.state.size(); ++i) {
    const ir::StateEntry& entry = step.state[i];
    const bool is_shard = entry.role == ir::StateRole::Shard && entry.range_of < 0;
    const bool is_gathered =
        is_shard && step.parameters[static_cast<size_t>(entry.parameter)].placement !=
                        ir::ParameterPlacement::Resident;
    if (is_gathered) groups.push_back({{static_cast<int>(i)}, false});
  }
  return groups;
}

// The first node that runs of the phase that a position belongs to.
int32_t head_of_phase(const schedule::TimeAxis& axis, int32_t position) {
  const ir::Phase phase = axis.node(position).origin.phase;
  int32_t head = 0;
  while (!ir::runs(axis.node(head)) || axis.node(head).origin.phase != phase) ++head;
  return head;
}

void start_at_the_head(schedule::MemoryPressure& pressure, std::vector<PlannedCopy*>& coming) {
  for (PlannedCopy* copy : coming) {
    const int32_t head = head_of_phase(pressure.axis(copy->program), copy->position);
    copy->other_half = std::clamp(head, copy->bound, copy->position);
    pressure.add(copy->program, copy->other_half, copy->position - 1, copy->bytes);
  }
}

}  // namespace

base::Result<Change> offload_parameters_greedily(ir::Step& step, const PassContext& context) {
  const StateRule rule = {
      [](const schedule::MemoryPressure&, std::vector<OffloadCandidate>& candidates) {
        for (OffloadCandidate& candidate : candidates) candidate.selected = true;
      },
      start_at_the_head};
  const base::Bytes budget = context.options.memory().value_or(base::Bytes{INT64_MAX / 2});
  return offload_once(
      step, context, budget, "offload-parameters-greedily",
      {"parameters-offloaded", "parameters", "visit the device for their uses only"},
      [&](const ir::Step& now, schedule::MemoryPressure pressure) {
        return offload_state(now, context, std::move(pressure), parameter_groups(now), rule);
      });
}

}  // namespace dc::passes
