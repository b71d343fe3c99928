#include "src/ir/cross_step.h"

namespace dc::ir {
namespace {

int entry_of(const Step& step, const Graph& graph, ValueId value) {
  const Node& producer = graph.node(graph.value(value).producer);
  if (producer.kind != OpKind::State) return -1;
  return step.state.find(std::get<std::string>(producer.find_arg("entry")->value));
}

}  // namespace

bool spans_steps(const Node& start) { return start.find_arg("spans_steps") != nullptr; }

std::vector<CrossStepGather> cross_step_gathers(const Step& step) {
  std::vector<CrossStepGather> found;
  const Graph& graph = step.programs.back().graph;
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const Node& node = graph.node(id);
    if (node.kind == OpKind::AllGatherIntoStart && spans_steps(node))
      found.push_back({id, entry_of(step, graph, node.operands[0])});
  }
  return found;
}

int awaited_entry(const Step& step, const Graph& graph, const Node& arrived) {
  return entry_of(step, graph, arrived.operands[0]);
}

}  // namespace dc::ir
