#include "src/ir/effects.h"

namespace dc::ir {

StateId entry_of(const Node& node) {
  const Arg* arg = node.kind == OpKind::State ? node.find(Attr::Entry) : nullptr;
  const auto* entry = arg == nullptr ? nullptr : std::get_if<StateId>(&arg->value);
  return entry == nullptr ? StateId{} : *entry;
}

ValueId view_root(const Graph& graph, ValueId value) {
  while (true) {
    const Node& node = graph.node(graph.value(value).producer);
    if (!is_view(node)) return value;
    value = node.operands[0];
  }
}

Space kernel_space(const Graph& graph, const Node& node) {
  if (!is_update(node.kind) && node.kind != OpKind::Cast) return Space::Device;
  for (const ValueId operand : node.operands) {
    const Space space = graph.storage(view_root(graph, operand)).location.space;
    if (space != Space::Device) return space;
  }
  return node.results.empty() ? Space::Device : graph.storage(node.results[0]).location.space;
}

ValueId copy_of_parameter(const Node& node) {
  const auto operand = is_update(node.kind) ? optional_operand(node.kind) : std::nullopt;
  return operand && *operand < node.operands.size() ? node.operands[*operand] : ValueId{};
}

bool reads(const Node& node, size_t operand) {
  const std::span<const OperandInfo> operands = info(node.kind).operands();
  return operand >= operands.size() || operands[operand].access != Access::Write;
}

}  // namespace dc::ir
