#include "src/schedule/state_values.h"

#include "src/ir/builder.h"
#include "src/ir/effects.h"

namespace dc::schedule {

ir::ValueId state_value(ir::Step& step, ir::Graph& graph, int entry) {
  return StateValues(step, graph).of(entry);
}

StateValues::StateValues(const ir::Step& step, ir::Graph& graph)
    : step_(step), graph_(graph), behind_(graph.first()) {
  for (; behind_.valid(); behind_ = graph.next(behind_)) {
    const ir::Node& node = graph.node(behind_);
    if (node.kind != ir::OpKind::State && node.kind != ir::OpKind::Input) break;
    if (node.kind == ir::OpKind::State) known_.emplace(ir::entry_of(node), node.results[0]);
  }
}

ir::ValueId StateValues::of(int entry) {
  const ir::StateEntry& state = step_.state[static_cast<size_t>(entry)];
  const auto [found, is_new] = known_.try_emplace(ir::StateId{entry});
  if (is_new) {
    found->second = ir::Builder(graph_, behind_)
                        .make(ir::OpKind::State, {}, {state.name, state.type},
                              {{ir::Attr::Entry, ir::StateId{entry}}});
  }
  return found->second;
}

StateIndex::StateIndex(const ir::Step& step) : by_parameter_(step.parameters.size()) {
  own_.fill(-1);
  for (ByRole& roles : by_parameter_) roles.fill(-1);
  for (size_t i = 0; i < step.state.size(); ++i) {
    const ir::StateEntry& entry = step.state[i];
    ByRole& roles =
        entry.parameter < 0 ? own_ : by_parameter_[static_cast<size_t>(entry.parameter)];
    int& slot = roles[static_cast<size_t>(entry.role)];
    if (slot < 0) slot = static_cast<int>(i);
  }
}

int StateIndex::of(int parameter, ir::StateRole role) const {
  const ByRole& roles = parameter < 0 ? own_ : by_parameter_[static_cast<size_t>(parameter)];
  return roles[static_cast<size_t>(role)];
}

int range_of(const ir::Step& step, int entry) {
  for (size_t i = 0; i < step.state.size(); ++i) {
    if (step.state[i].range_of == entry) return static_cast<int>(i);
  }
  return -1;
}

int add_entry(ir::Step& step, ir::StateEntry entry) {
  DC_CHECK(step.state.find(entry.name) < 0);
  if (entry.storage_elements == 0) entry.storage_elements = entry.type.numel();
  step.state.push_back(std::move(entry));
  return static_cast<int>(step.state.size()) - 1;
}

int rng_entry(ir::Step& step) {
  for (size_t i = 0; i < step.state.size(); ++i) {
    if (step.state[i].role == ir::StateRole::Random) return static_cast<int>(i);
  }
  ir::StateEntry entry;
  entry.name = "rng";
  entry.role = ir::StateRole::Random;
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

std::vector<int> trainable_indices(const ir::Step& step) {
  std::vector<int> indices;
  int next = 0;
  for (const ir::Parameter& parameter : step.parameters)
    indices.push_back(parameter.trainable ? next++ : -1);
  return indices;
}

}  // namespace dc::schedule
