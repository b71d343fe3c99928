#include "src/plan/traffic.h"

#include <algorithm>

#include "src/analysis/liveness.h"
#include "src/cost/transfer.h"
#include "src/ir/effects.h"

namespace dc::plan {
namespace {

using ir::Node;

int64_t sent(const cost::Transfer& transfer, const ir::Mesh& mesh, int rank) {
  const int64_t before = mesh.index(transfer.group, rank) * transfer.shard;
  int64_t own = std::clamp<int64_t>(transfer.elements - before, 0, transfer.shard);
  int64_t gathered = own * (mesh.size(transfer.group) - 1),
          scattered = (transfer.elements - own) * transfer.element_bytes;
  switch (transfer.kind) {
    case cost::Collective::AllGather:
      return gathered * transfer.element_bytes;
    case cost::Collective::ReduceScatter:
      return scattered;
    case cost::Collective::AllReduce:
      return scattered + gathered * base::byte_size(ir::DType::F32);
    case cost::Collective::Broadcast:
    case cost::Collective::AllToAll:
      break;  // no op makes them
  }
  return 0;
}

}  // namespace

std::vector<int64_t> wire_bytes(const ir::Step& step, int rank) {
  std::vector<int64_t> bytes(base::kCollectiveKindNames.size(), 0);
  for (const ir::Program& program : step.programs) {
    const ir::Graph& graph = program.graph;
    for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
      auto transfer = cost::transfer_of(graph, graph.node(id));
      if (transfer)
        bytes[static_cast<size_t>(transfer->kind)] +=
            program.repeat * sent(*transfer, step.mesh, rank);
    }
  }
  return bytes;
}

CopiedBytes copied_bytes(const ir::Step& step) {
  CopiedBytes bytes;
  for (const ir::Program& program : step.programs) {
    const ir::Graph& graph = program.graph;
    for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
      const auto copy = cost::space_copy_of(step, graph, graph.node(id));
      if (!copy) continue;
      (copy->to == ir::Space::Device ? bytes.in : bytes.out) += program.repeat * copy->bytes.v;
    }
  }
  return bytes;
}

std::optional<NodeFigure> figure_of(const ir::Step& step, const ir::Graph& graph,
                                    const ir::Node& node, const cost::CostModel& cost) {
  if (!ir::runs(node) || ir::is_wait(node.kind)) return std::nullopt;
  if (cost::transfer_of(graph, node)) {
    if (cost::joins(node)) return std::nullopt;
    return NodeFigure{cost::bucket_time(step, graph, node, cost), &SerialTime::communication};
  }
  if (const auto copy = cost::space_copy_of(step, graph, node))
    return NodeFigure{cost.copy(copy->bytes, copy->from, copy->to), &SerialTime::copies};
  const bool on_host = ir::kernel_space(graph, node) == ir::Space::Host;
  return NodeFigure{cost.compute(graph, node),
                    on_host ? &SerialTime::on_host : &SerialTime::compute};
}

SerialTime serial_time(const ir::Step& step, const cost::CostModel& cost) {
  SerialTime total;
  for (const ir::Program& program : step.programs) {
    const ir::Graph& graph = program.graph;
    for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
      const std::optional<NodeFigure> figure = figure_of(step, graph, graph.node(id), cost);
      if (!figure) continue;
      const auto source = static_cast<size_t>(figure->estimate.source);
      const base::Nanos time = figure->estimate.time * program.repeat;
      total.*figure->part += time;
      total.by_source[source] += time;
      ++total.counts[source];
    }
  }
  return total;
}

}  // namespace dc::plan
