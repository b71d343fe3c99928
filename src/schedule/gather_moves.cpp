#include "src/schedule/gather_moves.h"

#include <algorithm>

#include "src/cost/transfer.h"

namespace dc::schedule {

using ir::NodeId;
using ir::OpKind;

bool is_gather(OpKind start) {
  return start == OpKind::AllGatherStart || start == OpKind::AllGatherIntoStart;
}

NodeId cast_of(const ir::Graph& graph, const ir::Node& start) {
  const ir::Node& producer = graph.node(graph.value(start.operands.back()).producer);
  return producer.kind == OpKind::Cast ? producer.id : NodeId{};
}

int32_t earliest_start(const Positions& axis, const ir::Node& start, int32_t position) {
  const ir::Graph& graph = axis.graph;
  const NodeId cast = cast_of(graph, start);
  const ir::ValueId shard = cast.valid() ? graph.node(cast).operands[0] : start.operands.back();
  const bool into = start.kind == OpKind::AllGatherIntoStart;
  int32_t first = axis.position(graph.value(shard).producer) + 1;
  if (into) first = std::max(first, axis.position(graph.value(start.operands[0]).producer) + 1);
  first = std::max(first, axis.last_write(shard, position) + 1);
  if (into) first = std::max(first, axis.last_touch(start.operands[0], position) + 1);
  return first;
}

int64_t gathered_bytes(const ir::Step& step, const ir::Graph& graph, const ir::Node& start) {
  const auto transfer = cost::transfer_of(graph, start);
  const int64_t shard = transfer->shard * transfer->element_bytes;
  const bool fresh = start.kind == OpKind::AllGatherStart;
  return (fresh ? aligned_bytes(cost::padded_bytes(step, *transfer)) : 0) +
         (cast_of(graph, start).valid() ? aligned_bytes(shard) : 0);
}

NodeId move_gathers(ir::Graph& graph, const std::vector<NodeId>& bucket, NodeId before) {
  std::vector<NodeId> nodes;
  for (NodeId start : bucket) {
    const NodeId cast = cast_of(graph, graph.node(start));
    if (cast.valid()) nodes.push_back(cast);
  }
  nodes.insert(nodes.end(), bucket.begin(), bucket.end());
  while (std::ranges::find(nodes, before) != nodes.end()) before = graph.next(before);
  for (NodeId node : nodes) graph.move_before(node, before);
  return nodes[0];
}

void leave_bucket(ir::Graph& graph, ir::NodeId start) {
  const ir::NodeId next = graph.next(start);
  if (cost::joins(graph.node(start)) || !next.valid() || !cost::joins(graph.node(next))) return;
  std::erase_if(graph.edit(next).args.edit(),
                [](const ir::Arg& arg) { return arg.attribute == ir::Attr::Joins; });
}

}  // namespace dc::schedule
