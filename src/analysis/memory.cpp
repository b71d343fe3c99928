#include "src/analysis/memory.h"

#include <algorithm>

#include "src/base/text.h"

namespace dc::analysis {
namespace {

void add(PeakMemory& peak, LiveValue value) {
  value.bytes.v = aligned_bytes(value.bytes.v);
  if (value.bytes.v == 0) return;
  peak.by_kind[static_cast<size_t>(value.kind)] += value.bytes;
  peak.live += value.bytes;
  peak.largest.push_back(std::move(value));
}

void collect_state(PeakMemory& peak, const ir::Step& step, ir::Space space) {
  for (const ir::StateEntry& entry : step.state) {
    if (entry.location.space == space)
      add(peak, {entry.name, "", base::slice_kind(entry.role), state_bytes(entry)});
  }
}

void collect(PeakMemory& peak, const ir::Graph& graph, const Liveness& live,
             const ScratchBytes& scratch, ir::Space space) {
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
  add(peak, {"scratch of " + peak.node, peak.module, SliceKind::Scratch,
             scratch ? scratch(graph, node) : base::Bytes{node.scratch.bytes}});
}

}  // namespace

std::string op_text(const ir::Node& node) {
  return node.kind == ir::OpKind::Aten ? node.overload.text()
                                       : std::string(ir::info(node.kind).text);
}

PeakMemory peak_memory(const ir::Step& step, const ScratchBytes& scratch, size_t largest_count,
                       ir::Space space) {
  PeakMemory peak;
  int64_t most = -1;
  Liveness live_there;
  for (size_t i = 0; i < step.programs.size(); ++i) {
    const ir::Graph& graph = step.programs[i].graph;
    Liveness live = liveness(step, graph, StorageMap(step, graph));
    const LivePeak found = live_bytes(graph, live, scratch).peak(space);
    if (found.bytes.v <= most) continue;
    most = found.bytes.v;
    peak.program = static_cast<int>(i);
    peak.position = found.position;
    live_there = std::move(live);
  }
  collect_state(peak, step, space);
  if (most >= 0)
    collect(peak, step.programs[static_cast<size_t>(peak.program)].graph, live_there, scratch,
            space);
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
