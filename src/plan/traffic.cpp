#include "src/plan/traffic.h"

#include <algorithm>
#include <optional>

#include "src/analysis/liveness.h"

namespace dc::plan {
namespace {

using ir::Node;
using ir::OpKind;
using runtime::plan::CollectiveKind;

// A collective as its start node describes it.
struct Transfer {
  CollectiveKind kind;
  int64_t elements = 0, shard = 0;
  int64_t element_bytes = 0;  // on the wire
};

std::optional<Transfer> transfer_of(const ir::Graph& graph, const Node& node) {
  CollectiveKind kind;
  size_t input = 0;
  if (node.kind == OpKind::AllGatherStart) {
    kind = CollectiveKind::AllGather;
  } else if (node.kind == OpKind::AllGatherIntoStart) {
    kind = CollectiveKind::AllGather;
    input = 1;
  } else if (node.kind == OpKind::ReduceScatterStart) {
    kind = CollectiveKind::ReduceScatter;
  } else if (node.kind == OpKind::AllReduceStart) {
    kind = CollectiveKind::AllReduce;
  } else {
    return std::nullopt;
  }
  int64_t element_bytes = base::byte_size(graph.value(node.operands[input]).type.dtype);
  return Transfer{kind, node.int_arg("elements"), node.int_arg("shard"), element_bytes};
}

int64_t sent(const Transfer& transfer, int rank, int world) {
  int64_t own = std::clamp<int64_t>(transfer.elements - rank * transfer.shard, 0, transfer.shard);
  int64_t gathered = own * (world - 1),
          scattered = (transfer.elements - own) * transfer.element_bytes;
  switch (transfer.kind) {
    case CollectiveKind::AllGather:
      return gathered * transfer.element_bytes;
    case CollectiveKind::ReduceScatter:
      return scattered;
    case CollectiveKind::AllReduce:
      return scattered + gathered * base::byte_size(ir::DType::F32);
    case CollectiveKind::Broadcast:
    case CollectiveKind::AllToAll:
      return 0;
  }
  return 0;
}

cost::Collective cost_kind(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::ReduceScatter:
      return cost::Collective::ReduceScatter;
    case CollectiveKind::AllReduce:
      return cost::Collective::AllReduce;
    case CollectiveKind::AllGather:
    case CollectiveKind::Broadcast:
    case CollectiveKind::AllToAll:
      return cost::Collective::AllGather;
  }
  return cost::Collective::AllGather;
}

void count(cost::Source source, SerialTime& time) {
  switch (source) {
    case cost::Source::Measured:
      ++time.measured;
      return;
    case cost::Source::Interpolated:
      ++time.interpolated;
      return;
    case cost::Source::Analytic:
      ++time.analytic;
      return;
  }
}

}  // namespace

std::vector<int64_t> wire_bytes(const ir::Step& step, int rank) {
  std::vector<int64_t> bytes(static_cast<size_t>(CollectiveKind::AllToAll) + 1, 0);
  for (const ir::Program& program : step.programs) {
    const ir::Graph& graph = program.graph;
    for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
      auto transfer = transfer_of(graph, graph.node(id));
      if (transfer)
        bytes[static_cast<size_t>(transfer->kind)] +=
            program.repeat * sent(*transfer, rank, step.mesh.world());
    }
  }
  return bytes;
}

SerialTime serial_time(const ir::Step& step, const cost::CostModel& cost) {
  SerialTime total;
  for (const ir::Program& program : step.programs) {
    const ir::Graph& graph = program.graph;
    for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
      const Node& node = graph.node(id);
      if (!analysis::runs(node)) continue;
      cost::Estimate estimate;
      if (auto transfer = transfer_of(graph, node)) {
        estimate =
            cost.collective(cost_kind(transfer->kind),
                            {transfer->elements * transfer->element_bytes}, step.mesh.world());
        total.communication += estimate.time * program.repeat;
      } else if (ir::info(node.kind).provider != ir::Provider::Comm) {
        estimate = cost.compute(graph, node);
        total.compute += estimate.time * program.repeat;
      } else {
        continue;  // the done half
      }
      count(estimate.source, total);
    }
  }
  return total;
}

}  // namespace dc::plan
