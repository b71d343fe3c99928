#include "src/analysis/memory.h"

#include <algorithm>

#include "src/base/text.h"

namespace dc::analysis {
namespace {

int64_t aligned(base::Bytes bytes) { return base::round_up(bytes.v, base::kAlignment); }

struct Found {
  int32_t position = 0;
  int64_t live = -1;
};

// Where most transient bytes live; the first such position.
Found find_peak(const Liveness& live, const std::vector<int64_t>& scratch, ir::Space space) {
  std::vector<int64_t> change(live.order.size() + 1, 0);
  for (const LiveRange& range : live.ranges) {
    if (range.space != space) continue;
    change[static_cast<size_t>(range.first)] += aligned(range.bytes);
    change[static_cast<size_t>(range.last) + 1] -= aligned(range.bytes);
  }
  Found found;
  int64_t now = 0;
  for (size_t i = 0; i < live.order.size(); ++i) {
    now += change[i];
    if (now + scratch[i] > found.live) found = {static_cast<int32_t>(i), now + scratch[i]};
  }
  return found;
}

std::vector<int64_t> scratch_by_position(const ir::Graph& graph, const Liveness& live,
                                         const ScratchBytes& scratch, ir::Space space) {
  if (space != ir::Space::Device) return std::vector<int64_t>(live.order.size(), 0);
  std::vector<int64_t> bytes;
  bytes.reserve(live.order.size());
  for (ir::NodeId id : live.order) {
    const ir::Node& node = graph.node(id);
    bytes.push_back(aligned(scratch ? scratch(graph, node) : base::Bytes{node.scratch.bytes}));
  }
  return bytes;
}

void add(PeakMemory& peak, LiveValue value) {
  value.bytes.v = aligned(value.bytes);
  if (value.bytes.v == 0) return;
  peak.by_kind[static_cast<size_t>(value.kind)] += value.bytes;
  peak.live += value.bytes;
  peak.largest.push_back(std::move(value));
}

void add_state(PeakMemory& peak, const ir::Step& step, ir::Space space) {
  for (const ir::StateEntry& entry : step.state) {
    if (entry.location.space == space)
      add(peak, {entry.name, "", kind_of(entry.role), state_bytes(entry)});
  }
}

void collect(PeakMemory& peak, const ir::Graph& graph, const Liveness& live, int64_t scratch,
             ir::Space space) {
  for (const LiveRange& range : live.ranges) {
    if (range.space != space) continue;
    if (range.first > peak.position || range.last < peak.position) continue;
    const ir::Value& value = graph.value(range.value);
    add(peak, {value.name, graph.node(value.producer).origin.module, range.kind, range.bytes});
  }
  if (live.order.empty()) return;
  const ir::Node& node = graph.node(live.order[static_cast<size_t>(peak.position)]);
  peak.node = op_text(node);
  peak.module = node.origin.module;
  add(peak, {"scratch of " + peak.node, peak.module, Kind::Scratch, {scratch}});
}

}  // namespace

std::string op_text(const ir::Node& node) {
  return node.kind == ir::OpKind::Aten ? node.overload : std::string(ir::info(node.kind).text);
}

PeakMemory peak_memory(const ir::Step& step, const ScratchBytes& scratch, size_t largest_count,
                       ir::Space space) {
  PeakMemory peak;
  int64_t most = -1, scratch_there = 0;
  Liveness live_there;
  for (size_t i = 0; i < step.programs.size(); ++i) {
    const ir::Graph& graph = step.programs[i].graph;
    Liveness live = liveness(step, graph, StorageMap(step, graph));
    std::vector<int64_t> bytes = scratch_by_position(graph, live, scratch, space);
    Found found = find_peak(live, bytes, space);
    if (found.live <= most) continue;
    most = found.live;
    peak.program = static_cast<int>(i);
    peak.position = found.position;
    scratch_there = bytes[static_cast<size_t>(found.position)];
    live_there = std::move(live);
  }
  add_state(peak, step, space);
  if (most >= 0) {
    collect(peak, step.programs[static_cast<size_t>(peak.program)].graph, live_there, scratch_there,
            space);
  }
  std::stable_sort(peak.largest.begin(), peak.largest.end(),
                   [](const LiveValue& a, const LiveValue& b) { return a.bytes > b.bytes; });
  if (peak.largest.size() > largest_count) peak.largest.resize(largest_count);
  return peak;
}

std::string describe(const PeakMemory& peak) {
  std::string text = "peak " + base::format_bytes(peak.live.v) + " at index " +
                     std::to_string(peak.position) + " (" + peak.node +
                     (peak.module.empty() ? "" : " in " + peak.module) + ")";
  for (const LiveValue& value : peak.largest) {
    text += "\n  " + base::format_bytes(value.bytes.v) + "  " + std::string(name(value.kind)) +
            "  " + value.name;
    if (!value.module.empty()) text += " of " + value.module;
  }
  return text;
}

}  // namespace dc::analysis
