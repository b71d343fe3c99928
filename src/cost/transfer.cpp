#include "src/cost/transfer.h"

namespace dc::cost {
namespace {

using ir::OpKind;

struct Start {
  Collective kind;
  size_t input;  // operand that travels
};

std::optional<Start> start_of(OpKind kind) {
  if (kind == OpKind::AllGatherStart) return Start{Collective::AllGather, 0};
  if (kind == OpKind::AllGatherIntoStart) return Start{Collective::AllGather, 1};
  if (kind == OpKind::ReduceScatterStart) return Start{Collective::ReduceScatter, 0};
  if (kind == OpKind::AllReduceStart) return Start{Collective::AllReduce, 0};
  return std::nullopt;
}

}  // namespace

std::optional<Transfer> transfer_of(const ir::Graph& graph, const ir::Node& node) {
  const std::optional<Start> start = start_of(node.kind);
  if (!start) return std::nullopt;
  const int64_t element_bytes =
      base::byte_size(graph.value(node.operands[start->input]).type.dtype);
  return Transfer{start->kind, node.int_arg("elements"), node.int_arg("shard"), element_bytes};
}

bool joins(const ir::Node& start) { return start.find_arg("joins") != nullptr; }

std::vector<ir::NodeId> bucket_of(const ir::Graph& graph, ir::NodeId first) {
  std::vector<ir::NodeId> bucket = {first};
  for (ir::NodeId id = graph.next(first); id.valid() && joins(graph.node(id)); id = graph.next(id))
    bucket.push_back(id);
  return bucket;
}

Estimate bucket_time(const ir::Graph& graph, const ir::Node& first, int group_size,
                     const CostModel& cost) {
  base::Bytes bytes;
  for (ir::NodeId id : bucket_of(graph, first.id))
    bytes += transfer_of(graph, graph.node(id))->bytes();
  return cost.collective(transfer_of(graph, first)->kind, bytes, group_size);
}

}  // namespace dc::cost
