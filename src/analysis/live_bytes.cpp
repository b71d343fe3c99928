#include "src/analysis/live_bytes.h"

#include <algorithm>

namespace dc::analysis {

int64_t aligned_bytes(int64_t bytes) { return base::round_up(bytes, base::kAlignment); }

LivePeak LiveBytes::peak(ir::Space space) const {
  const std::vector<int64_t>& curve = in(space);
  LivePeak peak;
  for (size_t i = 0; i < curve.size(); ++i) {
    if (curve[i] > peak.bytes.v) peak = {static_cast<int32_t>(i), {curve[i]}};
  }
  return peak;
}

LiveBytes live_bytes(const ir::Graph& graph, const Liveness& live, const ScratchBytes& scratch) {
  const size_t count = live.order.size();
  LiveBytes result;
  result.at[ir::Space::Device].resize(count + 1);
  for (const LiveRange& range : live.ranges) {
    std::vector<int64_t>& change = result.at[range.space];
    change.resize(count + 1);
    change[static_cast<size_t>(range.first)] += aligned_bytes(range.bytes.v);
    change[static_cast<size_t>(range.last) + 1] -= aligned_bytes(range.bytes.v);
  }
  for (std::vector<int64_t>& curve : result.at.values) {
    if (curve.empty()) continue;
    for (size_t i = 1; i < count; ++i) curve[i] += curve[i - 1];
    curve.resize(count);
  }
  for (size_t i = 0; i < count; ++i) {
    const ir::Node& node = graph.node(live.order[i]);
    const base::Bytes bytes = scratch ? scratch(graph, node) : base::Bytes{node.scratch.bytes};
    result.at[ir::Space::Device][i] += aligned_bytes(bytes.v);
  }
  return result;
}

base::Bytes state_bytes(const ir::Step& step, ir::Space space) {
  base::Bytes bytes;
  for (const ir::StateEntry& entry : step.state) {
    if (entry.location.space == space) bytes.v += aligned_bytes(state_bytes(entry).v);
  }
  return bytes;
}

base::Bytes most_live_bytes(const ir::Step& step, const ScratchBytes& scratch, ir::Space space) {
  base::Bytes most;
  for (const ir::Program& program : step.programs) {
    const Liveness live = liveness(step, program.graph, StorageMap(step, program.graph));
    most = std::max(most, live_bytes(program.graph, live, scratch).peak(space).bytes);
  }
  return state_bytes(step, space) + most;
}

}  // namespace dc::analysis
