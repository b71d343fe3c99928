#include "src/passes/fuse/fused_kernel.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "src/base/expression.h"
#include "src/ir/builder.h"
#include "src/passes/fuse/fusible_reduction.h"

namespace dc::passes {
namespace {

using base::Expression;
using base::ExpressionArgument;
using base::ExpressionArgumentKind;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

struct ComputedKernel {
  Expression expression;
  std::vector<ValueId> operands;
  std::vector<ValueId> results;  // that the group's members gave
};

// What a group computes. Operands are numbered as they are first read, values as their members
// follow each other, so that alike groups have one text.
class Describer {
 public:
  Describer(const Graph& graph, std::span<const NodeId> members, std::vector<ValueId> results)
      : graph_(graph) {
    for (const NodeId member : members) add(graph.node(member));
    for (const ValueId result : results)
      made_.expression.results.push_back(static_cast<size_t>(value_of_.at(result)));
    made_.results = std::move(results);
  }
  ComputedKernel take() { return std::move(made_); }

 private:
  void add(const Node& node) {
    base::ExpressionOperation operation;
    operation.dtype = graph_.value(node.results[0]).type.dtype;
    operation.overload = node.overload.name().substr(std::string_view("aten.").size());
    if (auto reduction = fusible_reduction(graph_, node))
      return add_reduction(node, *std::move(reduction), std::move(operation));
    for (const ir::Arg& arg : node.args) {
      if (auto argument = argument_of(node, arg)) operation.arguments.push_back(*argument);
    }
    value_of_[node.results[0]] = static_cast<int64_t>(made_.expression.operations.size());
    made_.expression.operations.push_back(std::move(operation));
  }

  void add_reduction(const Node& node, FusibleReduction reduction,
                     base::ExpressionOperation operation) {
    ExpressionArgument self, dim;
    self.name = "self";
    set_tensor(self, reduction.value);
    dim.name = "dim";
    dim.kind = ExpressionArgumentKind::Ints;
    dim.integers = std::move(reduction.dims);
    operation.overload = std::move(reduction.overload);
    operation.arguments = {std::move(self), std::move(dim)};
    value_of_[node.results[0]] = static_cast<int64_t>(made_.expression.operations.size());
    made_.expression.operations.push_back(std::move(operation));
  }

  // Nothing for what the type of the result says.
  std::optional<ExpressionArgument> argument_of(const Node& node, const ir::Arg& arg) {
    ExpressionArgument argument;
    argument.name = arg.name;
    if (const auto* operand = std::get_if<ir::OperandRef>(&arg.value)) {
      set_tensor(argument, node.operands[static_cast<size_t>(operand->index)]);
    } else if (const auto* flag = std::get_if<bool>(&arg.value)) {
      argument.kind = ExpressionArgumentKind::Bool;
      argument.integer = *flag ? 1 : 0;
    } else if (const auto* integer = std::get_if<int64_t>(&arg.value)) {
      argument.kind = ExpressionArgumentKind::Int;
      argument.integer = *integer;
    } else if (const auto* number = std::get_if<double>(&arg.value)) {
      argument.kind = ExpressionArgumentKind::Float;
      argument.number = *number;
    } else if (const auto* word = std::get_if<std::string>(&arg.value);
               word != nullptr && *word != "none") {
      argument.kind = ExpressionArgumentKind::Word;
      argument.word = *word;
    } else if (!std::holds_alternative<std::monostate>(arg.value) && word == nullptr) {
      return std::nullopt;
    }
    return argument;
  }

  void set_tensor(ExpressionArgument& argument, ValueId value) {
    const auto inside = value_of_.find(value);
    if (inside != value_of_.end()) {
      argument.kind = ExpressionArgumentKind::Value;
      argument.integer = inside->second;
      return;
    }
    const auto known = std::ranges::find(made_.operands, value);
    argument.kind = ExpressionArgumentKind::Operand;
    argument.integer = known - made_.operands.begin();
    if (known == made_.operands.end()) made_.operands.push_back(value);
  }

  const Graph& graph_;
  ComputedKernel made_;
  std::map<ValueId, int64_t> value_of_;
};

// Those that nothing reads any more.
void erase_views(Graph& graph, ValueId value) {
  for (;;) {
    const Node& maker = graph.node(graph.value(value).producer);
    if (!ir::is_plain_view(maker) || is_output(graph, value) || !graph.value(value).uses.empty())
      return;
    value = maker.operands[0];
    graph.erase(maker.id);
  }
}

}  // namespace

std::vector<ValueId> read_outside(const Graph& graph, std::span<const NodeId> members) {
  std::vector<ValueId> results;
  for (const NodeId member : members) {
    const ValueId value = graph.node(member).results[0];
    const auto is_member = [&](NodeId reader) { return std::ranges::count(members, reader) != 0; };
    if (is_read_outside(graph, value, is_member)) results.push_back(value);
  }
  return results;
}

base::KernelSignature fused_signature(const Graph& graph, std::span<const NodeId> members,
                                      std::vector<ValueId> results) {
  const ComputedKernel kernel = Describer(graph, members, std::move(results)).take();
  base::KernelSignature signature(ir::info(ir::OpKind::Fused).kernel, base::Provider::Fused);
  const auto add = [&](ValueId value) {
    const ir::TensorType& type = graph.value(value).type;
    signature.add_tensor(type.dtype, type.shape, type.strides);
  };
  for (const ValueId operand : kernel.operands) add(operand);
  signature.add_attribute("body", std::string_view(kernel.expression.text()));
  signature.begin_results();
  for (const ValueId result : kernel.results) add(result);
  return signature;
}

std::optional<FusedKernel> make_fused_kernel(Graph& graph, std::span<const NodeId> members) {
  const NodeId last = members.back();
  ComputedKernel kernel = Describer(graph, members, read_outside(graph, members)).take();
  if (kernel.operands.size() + kernel.results.size() > Expression::kMostTensors)
    return std::nullopt;
  std::vector<ir::NewValue> results;
  for (const ValueId result : kernel.results) {
    const ir::Value& value = graph.value(result);
    results.push_back({value.name, value.type});
  }
  FusedKernel made;
  made.made = ir::Builder(graph, last, graph.node(last).origin)
                  .make_all(ir::OpKind::Fused, kernel.operands, std::move(results),
                            {{ir::Attr::Body, kernel.expression.text()}});
  made.node = graph.value(made.made[0]).producer;
  made.results = std::move(kernel.results);
  return made;
}

void take_the_place(Graph& graph, const FusedKernel& kernel, std::span<const NodeId> members) {
  for (size_t i = 0; i < kernel.made.size(); ++i)
    graph.replace_all_uses(kernel.results[i], kernel.made[i]);
  for (auto member = members.rbegin(); member != members.rend(); ++member) {
    ValueId operand = graph.node(*member).operands[0];
    graph.erase(*member);
    erase_views(graph, operand);
  }
}

}  // namespace dc::passes
