#include "src/schedule/time_axis.h"

#include <algorithm>

#include "src/cost/transfer.h"
#include "src/ir/effects.h"
#include "src/sim/simulate.h"
#include "src/sim/workload.h"

namespace dc::schedule {

Positions::Positions(const ir::Step& step, const ir::Graph& of)
    : graph(of),
      storages(step, of),
      live(analysis::liveness(step, of, storages)),
      touches(step, of, storages, live.order) {}

TimeAxis::TimeAxis(const ir::Step& step, const ir::Graph& of, const cost::CostModel& cost)
    : Positions(step, of), bytes(transient_bytes(of, live, cost)) {
  const size_t count = live.order.size();
  at.resize(count + 1);
  for (size_t i = 0; i < count; ++i) {
    const ir::Node& node = graph.node(live.order[i]);
    const bool is_compute = analysis::stream_of(node) == 0 && !ir::is_start(node.kind);
    const bool counts = is_compute && !sim::travels_with_collective(node.kind);
    at[i + 1] = at[i] + (counts ? sim::node_time(step, graph, node, cost) : base::Nanos{});
  }
  backward_ = find_backward();
}

std::vector<int64_t> transient_bytes(const ir::Graph& graph, const analysis::Liveness& live,
                                     const cost::CostModel& cost) {
  const auto scratch = [&](const ir::Graph& in, const ir::Node& node) {
    return cost.scratch(in, node).bytes;
  };
  return std::move(analysis::live_bytes(graph, live, scratch).at[ir::Space::Device]);
}

TimeAxis::Phase TimeAxis::find_backward() const {
  const auto count = static_cast<int32_t>(live.order.size());
  Phase phase{count, count};
  for (int32_t i = count; i-- > 0;) {
    if (node(i).origin.phase != ir::Phase::Backward) continue;
    if (phase.begin == count) phase.end = i + 1;
    phase.begin = i;
  }
  return phase;
}

bool Positions::writes(const ir::Node& node, int64_t storage) const {
  for (size_t i = 0; i < node.operands.size(); ++i) {
    if (ir::writes(node, i) && storage_key(node.operands[i]) == storage) return true;
  }
  return false;
}

namespace {

// The last of the positions before `position` that `counts`; -1 if there is none.
template <typename Counts>
int32_t last_before(std::span<const int32_t> positions, int32_t position, Counts counts) {
  auto at = std::lower_bound(positions.begin(), positions.end(), position);
  while (at != positions.begin()) {
    if (counts(*--at)) return *at;
  }
  return -1;
}

}  // namespace

int32_t Positions::last_write(ir::ValueId value, int32_t before) const {
  const int64_t key = storage_key(value);
  const auto counts = [&](int32_t i) { return writes(node(i), key); };
  return std::max(last_before(touches.by_others(key), before, counts),
                  last_before(touches.by_square_sums(key), before, counts));
}

int32_t Positions::last_touch(ir::ValueId value, int32_t before) const {
  const int64_t key = storage_key(value);
  const auto counts = [](int32_t) { return true; };
  return std::max(last_before(touches.by_others(key), before, counts),
                  last_before(touches.by_square_sums(key), before, counts));
}

std::optional<int64_t> transient_limit(const ir::Step& step,
                                       const std::optional<base::Bytes>& budget) {
  if (!budget) return std::nullopt;
  return live_limit((*budget - analysis::state_bytes(step, ir::Space::Device)).v);
}

}  // namespace dc::schedule
