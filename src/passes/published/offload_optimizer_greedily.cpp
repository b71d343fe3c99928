// offload-optimizer-greedily: adaptive offloading of optimizer state as DeepCompile does it (arXiv
// 2504.09983, algorithm 2; DeepSpeed, deepspeed/compile/passes/offload_adam_states.py). The
// baseline of offload-optimizer.
//
// States leave in the order of the parameters, moments before the master, until what stays fits
// during the forward passes in four fifths of the budget; the time of copies is ignored. They
// come back in the backward pass as soon as memory allows, whether or not that hides anything, and
// the rest at its end. Different from theirs: they are away in all micro-batches and travel once
// per step, not once per micro-batch; the new values go out right after the update instead of at
// the start of the next step, because a step ends with its state in place; a fragment is one state
// of one parameter; and states that stay count next to those that come back.
//
// The peaks that their rule reads hold DeepSpeed's partition of gradients, which is there all the
// time, in the parameters' dtype (stage3.py, grad_partitions_flat_buffer). Here a gradient is there
// from its reduction to the update, so what is not there of it counts in addition.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "src/base/dtype.h"
#include "src/passes/offload/offload_state.h"
#include "src/passes/published/published_rules.h"

namespace dc::passes {
namespace {

std::vector<StateGroup> optimizer_groups(const ir::Step& step) {
  using Role = ir::StateRole;
  constexpr Role kRoles[] = {Role::Moment1, Role::Moment2, Role::Momentum, Role::Master};
  std::vector<std::pair<int, int>> order;  // parameter and place of the role, by entry
  std::vector<StateGroup> groups;
  for (size_t i = 0; i < step.state.size(); ++i) {
    const ir::StateEntry& entry = step.state[i];
    const auto* role = std::find(std::begin(kRoles), std::end(kRoles), entry.role);
    order.emplace_back(entry.parameter, static_cast<int>(role - kRoles));
    if (role != std::end(kRoles) && entry.parameter >= 0 && entry.range_of < 0)
      groups.push_back({{static_cast<int>(i)}, true});
  }
  std::stable_sort(groups.begin(), groups.end(), [&](const StateGroup& a, const StateGroup& b) {
    return order[static_cast<size_t>(a.entries[0])] < order[static_cast<size_t>(b.entries[0])];
  });
  return groups;
}

// Bytes that the gradients of a step lack of DeepSpeed's partition of gradients.
class GradientPartition {
 public:
  explicit GradientPartition(const ir::Step& step) {
    for (const ir::Parameter& parameter : step.parameters) {
      if (parameter.trainable)
        bytes_ += schedule::aligned_bytes(parameter.shard * base::byte_size(parameter.dtype));
    }
    for (const ir::StateEntry& entry : step.state) {
      if (entry.role == ir::StateRole::Accumulator && entry.location.space == ir::Space::Device)
        bytes_ -= schedule::aligned_bytes(analysis::state_bytes(entry).v);
    }
  }

  // At each position; never negative.
  std::vector<int64_t> lacking(const schedule::TimeAxis& axis) const {
    std::vector<int64_t> lacking(axis.bytes.size(), bytes_);
    for (const analysis::LiveRange& range : axis.live.ranges) {
      if (range.kind != base::SliceKind::Gradients || range.space != ir::Space::Device) continue;
      for (int32_t i = range.first; i <= range.last; ++i)
        lacking[static_cast<size_t>(i)] -= schedule::aligned_bytes(range.bytes.v);
    }
    for (int64_t& bytes : lacking) bytes = std::max<int64_t>(bytes, 0);
    return lacking;
  }

 private:
  int64_t bytes_ = 0;  // less what accumulators hold
};

void choose(const schedule::MemoryPressure& pressure, std::vector<OffloadCandidate>& candidates,
            const GradientPartition& partition, int64_t budget) {
  std::vector<int64_t> states, peaks;
  for (const OffloadCandidate& candidate : candidates) states.push_back(candidate.bytes);
  const int64_t all = std::accumulate(states.begin(), states.end(), int64_t{0});
  for (int p = 0; p < pressure.programs(); ++p) {
    const std::vector<int64_t> lacking = partition.lacking(pressure.axis(p));
    for (int32_t i = 0; i < pressure.axis(p).backward().begin; ++i)
      peaks.push_back(pressure.bytes(p, i) - all + lacking[static_cast<size_t>(i)]);
  }
  const size_t leave = published::states_that_leave(peaks, states, budget);
  for (size_t i = 0; i < leave; ++i) candidates[i].selected = true;
}

void start(schedule::MemoryPressure& pressure, std::vector<PlannedCopy*>& coming,
           const GradientPartition& partition, int64_t budget) {
  if (coming.empty()) return;
  const int program = coming[0]->program;
  const auto [begin, end] = pressure.axis(program).backward();
  std::vector<int64_t> states, peaks;
  for (const PlannedCopy* copy : coming) states.push_back(copy->bytes);
  const std::vector<int64_t> lacking = partition.lacking(pressure.axis(program));
  for (int32_t i = begin; i < end; ++i)
    peaks.push_back(pressure.bytes(program, i) + lacking[static_cast<size_t>(i)]);
  const std::vector<size_t> after = published::states_that_return(peaks, states, budget);
  for (size_t i = 0; i < coming.size(); ++i) {
    PlannedCopy& copy = *coming[i];
    const int32_t wanted = std::min(end, begin + static_cast<int32_t>(after[i]) + 1);
    copy.other_half = std::clamp(wanted, copy.bound, copy.position);
    pressure.add(program, copy.other_half, copy.position - 1, copy.bytes);
  }
}

}  // namespace

base::Result<Change> offload_optimizer_greedily(ir::Step& step, const PassContext& context) {
  if (!context.options.memory()) return Change::No;
  const int64_t budget = published::usable_beside_states(context.options.memory()->v);
  const GradientPartition partition(step);
  const StateRule rule = {
      [&](const schedule::MemoryPressure& pressure, std::vector<OffloadCandidate>& candidates) {
        choose(pressure, candidates, partition, budget);
      },
      [&](schedule::MemoryPressure& pressure, std::vector<PlannedCopy*>& coming) {
        start(pressure, coming, partition, budget);
      }};
  return offload_once(
      step, context, *context.options.memory(), "offload-optimizer-greedily",
      {"optimizer-state-offloaded", "optimizer states", "visit the device for their update only"},
      [&](const ir::Step& now, schedule::MemoryPressure pressure) {
        return offload_state(now, context, std::move(pressure), optimizer_groups(now), rule);
      });
}

}  // namespace dc::passes
