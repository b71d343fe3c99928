#include "src/bound/program_view.h"

#include <algorithm>

#include "src/analysis/live_bytes.h"
#include "src/ir/effects.h"
#include "src/schedule/state_values.h"

namespace dc::bound {

using ir::Node;
using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

ProgramView::ProgramView(const ir::Step& of, const ir::Program& program,
                         const cost::CostModel& cost)
    : step(of),
      graph(program.graph),
      repeat(program.repeat),
      storages(of, graph),
      live(analysis::liveness(of, graph, storages)),
      cost_(cost),
      bytes_(graph.value_capacity()),
      feeds_loss_(graph.node_capacity()),
      parameter_(graph.node_capacity(), -1) {
  for (const analysis::LiveRange& range : live.ranges)
    bytes_[range.value.index()] = analysis::aligned_bytes(range.bytes.v);
  find_loss();
  find_parameters();
}

std::vector<ValueId> ProgramView::touched(const Node& kernel) const {
  std::vector<ValueId> roots;
  for (const ValueId operand : kernel.operands) roots.push_back(root(operand));
  for (const ValueId result : kernel.results) {
    if (result.valid()) roots.push_back(root(result));
  }
  std::sort(roots.begin(), roots.end());
  roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
  std::erase_if(roots, [&](ValueId one) { return bytes_[one.index()] == 0; });
  return roots;
}

int64_t ProgramView::scratch(const Node& kernel) const {
  return analysis::aligned_bytes(cost_.scratch(graph, kernel).bytes.v);
}

bool ProgramView::is_model_kernel(const Node& node) {
  return ir::is_model_op(node.kind) && node.stream == 0 && ir::runs(node) &&
         node.origin.phase != ir::Phase::Update;
}

void ProgramView::find_loss() {
  for (NodeId id = graph.last(); id.valid(); id = graph.previous(id)) {
    const Node& node = graph.node(id);
    if (node.kind == OpKind::AddLoss) feeds_loss_[id.index()] = true;
    if (!feeds_loss_[id.index()]) continue;
    for (const ValueId operand : node.operands)
      feeds_loss_[graph.value(operand).producer.index()] = true;
  }
}

int ProgramView::of_entry(ValueId value) const {
  const int entry = storages.entry(value);
  return entry < 0 ? -1 : step.state[static_cast<size_t>(entry)].parameter;
}

int ProgramView::of_shard(ValueId value) const {
  const int entry = storages.entry(value);
  const bool is_shard =
      entry >= 0 && step.state[static_cast<size_t>(entry)].role == ir::StateRole::Shard;
  return is_shard ? of_entry(value) : -1;
}

int ProgramView::gathered(const Node& node) const {
  if (node.kind == OpKind::Cast) {
    const auto& uses = graph.value(node.results[0]).uses;
    const bool travels =
        !uses.empty() && std::all_of(uses.begin(), uses.end(), [&](const ir::Use& use) {
          return graph.node(use.node).kind == OpKind::AllGatherStart;
        });
    return travels ? of_shard(node.operands[0]) : -1;
  }
  if (node.kind != OpKind::AllGatherStart) return -1;
  const Node& maker = graph.node(graph.value(node.operands[0]).producer);
  return maker.kind == OpKind::Cast ? gathered(maker) : of_shard(node.operands[0]);
}

// From a gradient, or a sum of them, back to what the model's kernels made.
void ProgramView::tag_makers(ValueId value, int parameter) {
  const Node& maker = graph.node(graph.value(value).producer);
  if (ir::is_model_op(maker.kind) || maker.kind == OpKind::State || maker.kind == OpKind::Input ||
      parameter_[maker.id.index()] >= 0)
    return;
  parameter_[maker.id.index()] = parameter;
  if (!maker.operands.empty()) tag_makers(maker.operands[0], parameter);
}

void ProgramView::find_parameters() {
  std::vector<int> trainable;  // parameters, by column
  const std::vector<int> columns = schedule::trainable_indices(step);
  for (size_t p = 0; p < columns.size(); ++p) {
    if (columns[p] >= 0) trainable.push_back(static_cast<int>(p));
  }
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const Node& node = graph.node(id);
    if (ir::is_model_op(node.kind)) continue;
    int parameter = gathered(node);
    const ir::Arg* column = node.find(ir::Attr::Param);
    if (column != nullptr) {
      parameter = trainable[static_cast<size_t>(node.integer(ir::Attr::Param))];
    } else if (parameter < 0 && node.kind != OpKind::State && ir::runs(node) &&
               !node.operands.empty()) {
      parameter = of_entry(root(node.operands[0]));
    }
    if (parameter < 0) continue;
    parameter_[id.index()] = parameter;
    const auto gradient = ir::gradient_operand(node.kind);
    if (gradient) tag_makers(node.operands[*gradient], parameter);
  }
}

}  // namespace dc::bound
