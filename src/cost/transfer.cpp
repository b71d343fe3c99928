#include "src/cost/transfer.h"

#include "src/analysis/storage.h"
#include "src/ir/group.h"

namespace dc::cost {
namespace {

using ir::OpKind;

struct Start {
  Collective kind;
  size_t input;  // operand that travels
};

std::optional<Start> collective_of(OpKind kind) {
  if (kind == OpKind::AllGatherStart) return Start{Collective::AllGather, 0};
  if (kind == OpKind::AllGatherIntoStart) return Start{Collective::AllGather, 1};
  if (kind == OpKind::ReduceScatterStart) return Start{Collective::ReduceScatter, 0};
  if (kind == OpKind::AllReduceStart || kind == OpKind::AllReduceInPlaceStart)
    return Start{Collective::AllReduce, 0};
  return std::nullopt;
}

// The space of a value that copies brought there, or of a state entry.
ir::Space space_of(const ir::Step& step, const ir::Graph& graph, ir::ValueId value) {
  const ir::Node* producer = &graph.node(graph.value(value).producer);
  while (ir::is_done(producer->kind) || producer->kind == OpKind::OffloadIntoStart) {
    value = producer->operands[0];
    producer = &graph.node(graph.value(value).producer);
  }
  if (producer->kind != OpKind::State) return graph.storage(value).location.space;
  const int entry = analysis::state_entry_of(step, *producer);
  return entry < 0 ? ir::Space::Device : step.state[static_cast<size_t>(entry)].location.space;
}

}  // namespace

std::optional<Transfer> transfer_of(const ir::Graph& graph, const ir::Node& node) {
  const std::optional<Start> start = collective_of(node.kind);
  if (!start) return std::nullopt;
  const int64_t element_bytes =
      base::byte_size(graph.value(node.operands[start->input]).type.dtype);
  // Every pass asks for this, so all attributes are read in one go.
  const int64_t *elements = nullptr, *shard = nullptr;
  bool has_ranks = false;
  for (const ir::Arg& arg : node.args) {
    if (arg.attribute == ir::Attr::Elements) elements = std::get_if<int64_t>(&arg.value);
    if (arg.attribute == ir::Attr::Shard) shard = std::get_if<int64_t>(&arg.value);
    has_ranks = has_ranks || arg.attribute == ir::Attr::Ranks;
  }
  DC_CHECK(elements != nullptr && shard != nullptr);
  return Transfer{start->kind, *elements, *shard, element_bytes,
                  has_ranks ? ir::group_of(node) : ir::kAllAxes};
}

bool joins(const ir::Node& start) { return start.find(ir::Attr::Joins) != nullptr; }

std::vector<ir::NodeId> bucket_of(const ir::Graph& graph, ir::NodeId first) {
  std::vector<ir::NodeId> bucket = {first};
  for (ir::NodeId id = graph.next(first); id.valid() && joins(graph.node(id)); id = graph.next(id))
    bucket.push_back(id);
  return bucket;
}

base::Bytes bucket_bytes(const ir::Graph& graph, const ir::Node& first) {
  base::Bytes bytes;
  for (ir::NodeId id : bucket_of(graph, first.id))
    bytes += transfer_of(graph, graph.node(id))->wire_bytes();
  return bytes;
}

Group group_of(const ir::Step& step, const ir::Node& start) {
  return group_on(step.mesh, ir::group_of(start));
}

Estimate bucket_time(const ir::Step& step, const ir::Graph& graph, const ir::Node& first,
                     const CostModel& cost) {
  const Transfer own = *transfer_of(graph, first);
  return cost.collective(own.kind, bucket_bytes(graph, first), group_on(step.mesh, own.group));
}

int64_t padded_bytes(const ir::Step& step, const Transfer& transfer) {
  return transfer.shard * transfer.element_bytes * step.mesh.size(transfer.group);
}

std::optional<SpaceCopy> space_copy_of(const ir::Step& step, const ir::Graph& graph,
                                       const ir::Node& node) {
  const auto bytes_of = [&](size_t operand) {
    return graph.value(node.operands[operand]).type.bytes();
  };
  if (node.kind == OpKind::OffloadStart) {
    return SpaceCopy{bytes_of(0), ir::Space::Device, graph.storage(node.results[0]).location.space};
  }
  if (node.kind == OpKind::OffloadIntoStart)
    return SpaceCopy{bytes_of(1), ir::Space::Device, space_of(step, graph, node.operands[0])};
  if (node.kind == OpKind::ReloadStart)
    return SpaceCopy{bytes_of(0), space_of(step, graph, node.operands[0]), ir::Space::Device};
  return std::nullopt;
}

}  // namespace dc::cost
