#include "src/ir/crossing.h"

namespace dc::ir {
namespace {

int entry_of(const Step& step, const Graph& graph, ValueId value) {
  const Node& producer = graph.node(graph.value(value).producer);
  if (producer.kind != OpKind::State) return -1;
  return step.state.find(std::get<std::string>(producer.find_arg("entry")->value));
}

}  // namespace

bool crosses(const Node& start) { return start.find_arg("crosses") != nullptr; }

std::vector<Crossing> crossings(const Step& step) {
  std::vector<Crossing> found;
  const Graph& graph = step.programs.back().graph;
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const Node& node = graph.node(id);
    if (node.kind == OpKind::AllGatherIntoStart && crosses(node))
      found.push_back({id, entry_of(step, graph, node.operands[0])});
  }
  return found;
}

int arriving_entry(const Step& step, const Graph& graph, const Node& arrived) {
  return entry_of(step, graph, arrived.operands[0]);
}

}  // namespace dc::ir
