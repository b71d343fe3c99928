// separate-reductions: reductions have another stream than gathers, and with it another
// communicator. On one stream a gather that compute waits for stands behind every reduction that
// was started before it; on two they share the link. Whether that pays is for a search to find out:
// what is on the link finishes later for it. Kernels, collectives and sums stay the same; so do all
// numbers.
//
// It comes last: the passes before it place starts and dones as if there were one queue.
#include "src/analysis/storage.h"
#include "src/base/text.h"
#include "src/cost/transfer.h"
#include "src/passes/pass.h"
#include "src/schedule/gather_moves.h"

namespace dc::passes {
namespace {

// Of a parameter, not of the norms that ranks exchange.
bool gathers_parameter(const ir::Step& step, const analysis::StorageMap& storages,
                       const ir::Node& start) {
  if (start.kind != ir::OpKind::AllGatherIntoStart) return start.kind == ir::OpKind::AllGatherStart;
  const int entry = storages.entry(start.operands[0]);
  return entry < 0 || step.state[static_cast<size_t>(entry)].role != ir::StateRole::NormTable;
}

bool reduces(const ir::Graph& graph, const ir::Node& start) {
  return cost::transfer_of(graph, start) && !schedule::is_gather(start.kind);
}

// By stream: another one for its reductions, where it carries gathers too; else -1.
std::vector<int> other_streams(ir::Step& step) {
  std::vector<uint8_t> gathers(step.streams.size()), reductions(step.streams.size());
  for (const ir::Program& program : step.programs) {
    const analysis::StorageMap storages(step, program.graph);
    for (const ir::NodeId id : program.graph.order()) {
      const ir::Node& node = program.graph.node(id);
      if (gathers_parameter(step, storages, node)) gathers[static_cast<size_t>(node.stream)] = 1;
      if (reduces(program.graph, node)) reductions[static_cast<size_t>(node.stream)] = 1;
    }
  }
  std::vector<int> others(step.streams.size(), -1);
  for (size_t stream = 1; stream < others.size(); ++stream) {
    if (!gathers[stream] || !reductions[stream]) continue;
    others[stream] = static_cast<int>(step.streams.size());
    step.streams.push_back(step.streams[stream] + "_reductions");
  }
  return others;
}

}  // namespace

base::Result<Change> separate_reductions(ir::Step& step, const PassContext& context) {
  const std::vector<int> others = other_streams(step);
  int64_t moved = 0;
  for (ir::Program& program : step.programs) {
    for (const ir::NodeId id : program.graph.order()) {
      const ir::Node& node = program.graph.node(id);
      const int other = others[static_cast<size_t>(node.stream)];
      if (other < 0 || !reduces(program.graph, node)) continue;
      program.graph.edit(id).stream = other;
      ++moved;
    }
  }
  if (moved == 0) return Change::No;
  context.remarks.push_back({"separate-reductions",
                             "reductions-separated",
                             {},
                             {{"reductions", moved}},
                             base::count_of(moved, "reduction") + (moved == 1 ? " has" : " have") +
                                 " another stream and communicator than the gathers"});
  return Change::Yes;
}

}  // namespace dc::passes
