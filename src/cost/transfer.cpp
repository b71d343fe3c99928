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

}  // namespace dc::cost
