#include "tests/src/bound/tiny_model.h"

#include <map>

#include "src/ir/effects.h"

namespace dc::bound::test {

TinyModel read(const ir::Step& step, const cost::CostModel& cost) {
  const ir::Graph& graph = step.programs[0].graph;
  TinyModel model;
  const int world = step.mesh.world();
  for (const ir::Parameter& parameter : step.parameters) {
    const int64_t shard = ((parameter.numel() + world - 1) / world + 31) / 32 * 32;
    model.parameters.push_back(
        {aligned(shard * world * 4), aligned(shard * 4), parameter.numel() * 4});
  }
  std::map<int32_t, int> value_of, parameter_of;  // by id of the value in the graph
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const ir::Node& node = graph.node(id);
    if (node.results.empty()) continue;
    const int32_t result = node.results[0].v;
    if (node.kind == ir::OpKind::State) {
      parameter_of[result] = step.state[ir::entry_of(node).index()].parameter;
      continue;
    }
    if (ir::is_view(node)) {
      const int32_t source = node.operands[0].v;
      if (value_of.contains(source)) value_of[result] = value_of[source];
      if (parameter_of.contains(source)) parameter_of[result] = parameter_of[source];
      continue;
    }
    TinyValue value{aligned(graph.value(node.results[0]).type.bytes().v)};
    value_of[result] = static_cast<int>(model.values.size());
    if (node.kind != ir::OpKind::Input) {
      value.maker = static_cast<int>(model.kernels.size());
      TinyKernel kernel;
      kernel.time = cost.compute(graph, node).time.v;
      kernel.scratch = aligned(cost.scratch(graph, node).bytes.v);
      kernel.makes = value_of[result];
      kernel.backward = node.origin.phase == ir::Phase::Backward;
      for (const ir::ValueId operand : node.operands) {
        if (value_of.contains(operand.v)) kernel.reads.push_back(value_of[operand.v]);
        if (parameter_of.contains(operand.v)) kernel.parameters.push_back(parameter_of[operand.v]);
      }
      for (const ir::Output& output : graph.outputs) {
        if (output.kind != ir::OutputKind::Gradient || output.value != node.results[0]) continue;
        for (size_t p = 0; p < step.parameters.size(); ++p) {
          if (step.parameters[p].fqn == output.fqn) kernel.gradient = static_cast<int>(p);
        }
      }
      for (const int source : kernel.reads) {
        TinyValue& read = model.values[static_cast<size_t>(source)];
        const bool forward =
            read.maker >= 0 && !model.kernels[static_cast<size_t>(read.maker)].backward;
        if (kernel.backward && forward) read.saved = true;
      }
      model.kernels.push_back(kernel);
    }
    model.values.push_back(value);
  }
  return model;
}

}  // namespace dc::bound::test
