#include "src/analysis/liveness.h"

#include <algorithm>
#include <numeric>

#include "src/ir/effects.h"
#include "src/ir/group.h"

namespace dc::analysis {
namespace {

using ir::Node;
using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

struct LivenessBuilder {
  const ir::Step& step;
  const ir::Graph& graph;
  const StorageMap& storages;
  Liveness result{};
  std::vector<LiveRange>
      by_root{};  // indexed by root value; `value` invalid where there is no transient
  int32_t last_of_input = 0;

  LiveRange& range(ValueId value) { return by_root[storages.root(value).index()]; }

  void use(ValueId value, int32_t position) {
    LiveRange& live = range(value);
    live.last = std::max(live.last, position);
  }

  // The earliest end of an input's live range. The loader fills every input, used or not, so an
  // input lives at least until the first node that runs, and those that run with it: the starts
  // that join a collective. With several programs inputs have the same addresses in all of them,
  // so they live until the end of the program.
  int32_t find_last_of_input() const {
    const auto size = static_cast<int32_t>(result.order.size());
    if (step.programs.size() > 1) return size - 1;
    int32_t position = 0;
    while (position < size && !ir::runs(node_at(position))) ++position;
    while (position + 1 < size && node_at(position + 1).find(ir::Attr::Joins) != nullptr)
      ++position;
    return std::min(position, size - 1);
  }

  const Node& node_at(int32_t position) const {
    return graph.node(result.order[static_cast<size_t>(position)]);
  }

  // A copy in another space is of the same kind as what it was copied from.
  SliceKind kind_made_by(const Node& node) {
    if (node.kind == OpKind::Input) return SliceKind::Inputs;
    if (node.kind == OpKind::AllGatherStart) return SliceKind::Gathered;
    if (node.kind != OpKind::OffloadStart && node.kind != OpKind::ReloadStart)
      return SliceKind::Activations;
    const int owner = storages.owner(node.operands[0]);
    return owner >= 0 ? base::slice_kind(step.state[static_cast<size_t>(owner)].role)
                      : range(node.operands[0]).kind;
  }

  void define(const Node& node, int32_t position) {
    int64_t padded = 0;
    if (node.kind == OpKind::AllGatherStart)
      padded = graph.value(node.operands[0]).type.numel() * step.mesh.size(ir::group_of(node));
    for (ValueId id : node.results) {
      if (!id.valid()) continue;
      const ir::Storage& storage = graph.storage(id);
      int64_t bytes = storage.bytes;
      if (padded > 0) bytes = std::max(bytes, padded * base::byte_size(graph.value(id).type.dtype));
      LiveRange& live = range(id);
      if (storages.root(id) == id && storages.owner(id) < 0) {
        int32_t first = node.kind == OpKind::Input ? 0 : position;
        const int32_t known = result.known[static_cast<size_t>(position)];
        int32_t last = node.kind == OpKind::Input ? std::max(position, last_of_input) : known;
        live = {id, first, last, {bytes}, kind_made_by(node), storage.location.space};
      } else {
        live.bytes.v = std::max(live.bytes.v, bytes);
        live.last = std::max(live.last, position);
      }
    }
  }

  void read(const Node& node, int32_t position) {
    for (ValueId operand : node.operands) use(operand, result.known[static_cast<size_t>(position)]);
    const auto gradient = ir::gradient_operand(node.kind);
    if (gradient && *gradient < node.operands.size()) {
      LiveRange& live = range(node.operands[*gradient]);
      if (live.kind != SliceKind::Inputs) live.kind = SliceKind::Gradients;  // as loss_scale may be
    }
    if (node.kind == OpKind::ReduceScatterStart || node.kind == OpKind::AllReduceStart)
      range(node.results[0]).kind = SliceKind::Gradients;
  }

  void run() {
    static_cast<ScheduleView&>(result) = schedule_view(step, graph);
    by_root.resize(graph.value_capacity());
    last_of_input = find_last_of_input();
    for (size_t i = 0; i < result.order.size(); ++i) {
      const Node& node = graph.node(result.order[i]);
      auto position = static_cast<int32_t>(i);
      define(node, position);
      read(node, position);
    }
    for (const ir::Output& output : graph.outputs) {
      if (!output.value.valid() || result.order.empty()) continue;
      use(output.value, static_cast<int32_t>(result.order.size()) - 1);
      if (output.kind == ir::OutputKind::Gradient) range(output.value).kind = SliceKind::Gradients;
    }
    sort_ranges();
  }

  // By first position, counted; those that begin together stay in the order of their values.
  void sort_ranges() {
    std::vector<size_t> next(result.order.size() + 1);  // by position: where its ranges begin
    for (const LiveRange& live : by_root) {
      if (live.value.valid()) ++next[static_cast<size_t>(live.first) + 1];
    }
    std::partial_sum(next.begin(), next.end(), next.begin());
    result.ranges.resize(next.back());
    for (const LiveRange& live : by_root) {
      if (live.value.valid()) result.ranges[next[static_cast<size_t>(live.first)]++] = live;
    }
  }
};

}  // namespace

Liveness liveness(const ir::Step& step, const ir::Graph& graph, const StorageMap& storages) {
  LivenessBuilder builder{step, graph, storages};
  builder.run();
  return std::move(builder.result);
}

}  // namespace dc::analysis
