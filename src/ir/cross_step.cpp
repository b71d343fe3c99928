#include "src/ir/cross_step.h"

#include "src/ir/effects.h"

namespace dc::ir {
namespace {

int entry_of(const Graph& graph, ValueId value) {
  return entry_of(graph.node(graph.value(value).producer)).v;
}

}  // namespace

bool spans_steps(const Node& start) { return start.find(Attr::SpansSteps) != nullptr; }

std::vector<CrossStepGather> cross_step_gathers(const Step& step) {
  std::vector<CrossStepGather> found;
  const Graph& graph = step.programs.back().graph;
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const Node& node = graph.node(id);
    if (node.kind == OpKind::AllGatherIntoStart && spans_steps(node))
      found.push_back({id, entry_of(graph, node.operands[0])});
  }
  return found;
}

int awaited_entry(const Graph& graph, const Node& wait) {
  return entry_of(graph, wait.operands[0]);
}

}  // namespace dc::ir
