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
      : graph_(graph), results_(results) {
    for (const NodeId member : members) {
      if (const auto reduction = fusible_reduction(graph, graph.node(member))) fold(*reduction);
    }
    for (const NodeId member : members) add(graph.node(member));
    for (const ValueId result : results)
      made_.expression.results.push_back(static_cast<size_t>(value_of_.at(result)));
    made_.results = std::move(results);
  }
  ComputedKernel take() { return std::move(made_); }

 private:
  // Rows, if the trailing dims are folded.
  void fold(const FusibleReduction& reduction) {
    const ir::Shape& shape = graph_.value(reduction.value).type.shape;
    if (!folds_trailing(reduction.dims, shape)) return;
    row_shape_ = shape;
    for (const int64_t dim : reduction.dims) row_shape_[static_cast<size_t>(dim)] = 1;
    folded_ = reduction.dims;
  }
  // Whether the operation is computed once for each row: on row values and operands of that shape,
  // and not a result with all elements.
  bool is_row(const Node& node, const base::ExpressionOperation& operation) const {
    if (folded_.empty()) return false;
    const ValueId value = node.results[0];
    if (std::ranges::count(results_, value) != 0 && !has_rows(value)) return false;
    return std::ranges::all_of(operation.arguments, [&](const ExpressionArgument& read) {
      const auto index = static_cast<size_t>(read.integer);
      if (read.kind == ExpressionArgumentKind::Value) return made_.expression.is_row_value(index);
      return read.kind != ExpressionArgumentKind::Operand || has_rows(made_.operands[index]);
    });
  }
  // Whether a value has one element along folded dims.
  bool has_rows(ValueId value) const {
    const ir::Shape& shape = graph_.value(value).type.shape;
    if (shape.size() > row_shape_.size()) return false;
    const size_t added = row_shape_.size() - shape.size();
    return std::ranges::all_of(folded_, [&](int64_t dim) {
      const auto at = static_cast<size_t>(dim);
      return at < added || shape[at - added] == 1;
    });
  }

  void add(const Node& node) {
    base::ExpressionOperation operation;
    operation.dtype = graph_.value(node.results[0]).type.dtype;
    operation.overload = node.overload.name().substr(std::string_view("aten.").size());
    if (auto reduction = fusible_reduction(graph_, node))
      return add_reduction(node, *std::move(reduction), std::move(operation));
    for (const ir::Arg& arg : node.args) {
      if (auto argument = argument_of(node, arg)) operation.arguments.push_back(*argument);
    }
    operation.is_row = is_row(node, operation);
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
    auto inside = value_of_.find(value);
    if (const ValueId rows = viewed(graph_, value); inside == value_of_.end() && rows != value) {
      if (reads_rows(graph_, rows, value)) inside = value_of_.find(rows);
    }
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
  const std::vector<ValueId> results_;
  std::vector<int64_t> folded_;  // dims; none unless rows are folded
  ir::Shape row_shape_;
  ComputedKernel made_;
  std::map<ValueId, int64_t> value_of_;
};

// Values of the members that others read, in their order.
std::vector<ValueId> read_outside(const Graph& graph, std::span<const NodeId> members) {
  std::vector<ValueId> results;
  for (const NodeId member : members) {
    const ValueId value = graph.node(member).results[0];
    const auto is_member = [&](NodeId reader) { return std::ranges::count(members, reader) != 0; };
    if (is_read_outside(graph, value, is_member)) results.push_back(value);
  }
  return results;
}

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
  if (kernel.expression.tensors() > Expression::kMostTensors) return std::nullopt;
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
    const auto operands = graph.node(*member).operands;
    graph.erase(*member);
    for (const ValueId operand : operands)
      if (graph.contains(graph.value(operand).producer)) erase_views(graph, operand);
  }
}

}  // namespace dc::passes
