#include "src/passes/state_values.h"

namespace dc::passes {

ir::AliasRule alias_rule(const ir::Node& node) {
  if (node.kind == ir::OpKind::Aten) return ir::aten_info(node.overload)->alias;
  return ir::info(node.kind).alias;
}

ir::ValueId view_root(const ir::Graph& graph, ir::ValueId value) {
  while (true) {
    const ir::Node& node = graph.node(graph.value(value).producer);
    if (alias_rule(node) != ir::AliasRule::View) return value;
    value = node.operands[0];
  }
}

ir::ValueId state_value(ir::Step& step, ir::Graph& graph, int entry) {
  const ir::StateEntry& state = step.state[static_cast<size_t>(entry)];
  ir::NodeId id = graph.first();
  for (; id.valid(); id = graph.next(id)) {
    const ir::Node& node = graph.node(id);
    if (node.kind != ir::OpKind::State && node.kind != ir::OpKind::Input) break;
    if (node.kind == ir::OpKind::State &&
        std::get<std::string>(node.find_arg("entry")->value) == state.name) {
      return node.results[0];
    }
  }
  ir::Origin origin;
  ir::Node& node = graph.insert(id, ir::OpKind::State, {}, {{state.name, state.type}},
                                {{"entry", state.name}}, origin);
  return node.results[0];
}

int add_entry(ir::Step& step, ir::StateEntry entry) {
  DC_CHECK(step.find_state(entry.name) < 0);
  if (entry.storage_elements == 0) entry.storage_elements = entry.type.numel();
  step.state.push_back(std::move(entry));
  return static_cast<int>(step.state.size()) - 1;
}

int rng_entry(ir::Step& step) {
  const int found = step.find_state("rng");
  if (found >= 0) return found;
  ir::StateEntry entry;
  entry.name = "rng";
  entry.role = ir::StateRole::Rng;
  entry.type = ir::contiguous(ir::DType::I64, {4});
  return add_entry(step, std::move(entry));
}

std::string loss_scale_name(const ir::Step& step) {
  for (const ir::InputSpec& input : step.inputs) {
    if (input.role == ir::InputRole::LossScale) return input.name;
  }
  return "";
}

int trainable_count(const ir::Step& step) {
  int count = 0;
  for (const ir::Parameter& parameter : step.parameters) count += parameter.trainable;
  return count;
}

int trainable_index(const ir::Step& step, int parameter) {
  if (!step.parameters[static_cast<size_t>(parameter)].trainable) return -1;
  int index = 0;
  for (int i = 0; i < parameter; ++i) index += step.parameters[static_cast<size_t>(i)].trainable;
  return index;
}

}  // namespace dc::passes
