#include "src/passes/offload/separate_copy.h"

#include "src/analysis/storage.h"
#include "src/ir/builder.h"
#include "src/ir/effects.h"

namespace dc::passes {

ir::ValueId separate_copy(ir::Step& step, ir::NodeId update) {
  ir::Graph& graph = step.programs.back().graph;
  const ir::ValueId copy = ir::copy_of_parameter(graph.node(update));
  const int entry = analysis::state_entry_of(step, graph.node(graph.value(copy).producer));
  const int parameter = step.state[static_cast<size_t>(entry)].parameter;
  const std::string name = "rounded." + step.parameters[static_cast<size_t>(parameter)].fqn;
  graph.drop_last_operand(update);
  const ir::Node& node = graph.node(update);
  return ir::Builder(graph, graph.next(update), node.origin, node.stream)
      .make(ir::OpKind::Cast, {node.operands[0]}, {name, graph.value(copy).type});
}

}  // namespace dc::passes
