#include "src/passes/fuse/fused_kernel.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "src/base/expression.h"
#include "src/ir/builder.h"
#include "src/passes/fuse/fusible_reduction.h"
#include "src/passes/fuse/placed_parts.h"

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
    made_.results = std::move(results);
    find_ranges(members);
    for (const NodeId member : members) add(graph.node(member));
    for (const ValueId result : made_.results)
      made_.expression.results.push_back(static_cast<size_t>(tensor_of_.at(result).integer));
    for (size_t i = 0; i < windows_.size(); ++i)
      if (windows_[i]) made_.expression.windows.emplace(i, *windows_[i]);
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

  // Where the members' values matter, of those that make parts.
  void find_ranges(std::span<const NodeId> members) {
    for (size_t i = members.size(); i-- > 0;) {
      const Node& node = graph_.node(members[i]);
      for (const PlacedPart& part : placed_parts(graph_, node))
        range_of_[graph_.value(part.value).producer] = part.range;
      const auto range = range_of_.find(node.id);
      if (range == range_of_.end()) continue;
      for (const ValueId operand : node.operands)
        range_of_[graph_.value(operand).producer] = range->second;
    }
    std::erase_if(range_of_,
                  [&](const auto& one) { return std::ranges::count(members, one.first) == 0; });
  }

  void add(const Node& node) {
    if (const std::vector<PlacedPart> parts = placed_parts(graph_, node); !parts.empty())
      return place(node, parts);
    base::ExpressionOperation operation;
    operation.dtype = graph_.value(node.results[0]).type.dtype;
    operation.overload = node.overload.name().substr(std::string_view("aten.").size());
    if (auto reduction = fusible_reduction(graph_, node))
      return add_reduction(node, *std::move(reduction), std::move(operation));
    for (const ir::Arg& arg : node.args) {
      if (auto argument = argument_of(node, arg)) operation.arguments.push_back(*argument);
    }
    operation.is_row = is_row(node, operation);
    tensor_of_[node.results[0]] = append(std::move(operation));
  }

  void add_reduction(const Node& node, FusibleReduction reduction,
                     base::ExpressionOperation operation) {
    ExpressionArgument self, dim;
    self = named("self", tensor(reduction.value, std::nullopt));
    dim.name = "dim";
    dim.kind = ExpressionArgumentKind::Ints;
    dim.integers = std::move(reduction.dims);
    operation.overload = std::move(reduction.overload);
    operation.arguments = {std::move(self), std::move(dim)};
    tensor_of_[node.results[0]] = append(std::move(operation));
  }

  ExpressionArgument append(base::ExpressionOperation operation) {
    ExpressionArgument value;
    value.kind = ExpressionArgumentKind::Value;
    value.integer = static_cast<int64_t>(made_.expression.operations.size());
    made_.expression.operations.push_back(std::move(operation));
    return value;
  }
  static ExpressionArgument named(std::string name, ExpressionArgument argument) {
    argument.name = std::move(name);
    return argument;
  }
  static ExpressionArgument integer(std::string name, int64_t value) {
    ExpressionArgument argument;
    argument.name = std::move(name);
    argument.kind = ExpressionArgumentKind::Int;
    argument.integer = value;
    return argument;
  }

  // Each part in its range, and beyond the last one zeros.
  void place(const Node& node, const std::vector<PlacedPart>& parts) {
    const base::DType dtype = graph_.value(node.results[0]).type.dtype;
    ExpressionArgument placed = tensor(parts.back().value, parts.back().range);
    const bool is_cat = parts.size() > 1;
    for (size_t i = parts.size() - (is_cat ? 1 : 0); i-- > 0;) {
      const ExpressionArgument own = tensor(parts[i].value, parts[i].range);
      if (!is_cat && own.kind == ExpressionArgumentKind::Operand) break;  // it has zeros around it
      const ExpressionArgument condition = index_in(parts[i].range);
      placed =
          is_cat
              ? append(
                    {dtype,
                     "where.self",
                     {named("condition", condition), named("self", own), named("other", placed)}})
              : append({dtype,
                        "where.ScalarOther",
                        {named("condition", condition), named("self", own), integer("other", 0)}});
    }
    const bool is_result = std::ranges::count(made_.results, node.results[0]) != 0;
    if (is_result && placed.kind == ExpressionArgumentKind::Operand)
      placed = append({dtype, "clone.default", {named("self", placed)}});
    tensor_of_[node.results[0]] = placed;
  }
  ExpressionArgument index_in(const base::IndexRange& range) {
    const auto known = conditions_.find(range);
    if (known != conditions_.end()) return known->second;
    return conditions_[range] = append({base::DType::Bool,
                                        "index_in.range",
                                        {integer("dim", range.dim), integer("begin", range.begin),
                                         integer("end", range.end)}});
  }

  // Nothing for what the type of the result says.
  std::optional<ExpressionArgument> argument_of(const Node& node, const ir::Arg& arg) {
    ExpressionArgument argument;
    argument.name = arg.name;
    if (const auto* operand = std::get_if<ir::OperandRef>(&arg.value)) {
      argument =
          named(arg.name, operand_of(node, node.operands[static_cast<size_t>(operand->index)]));
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

  // What the node reads; of a maker of a part, only what has all indices of the dim has no window.
  ExpressionArgument operand_of(const Node& node, ValueId value) {
    const auto range = range_of_.find(node.id);
    if (range == range_of_.end()) return tensor(value, std::nullopt);
    const size_t rank = graph_.value(node.results[0]).type.shape.size();
    if (!has_elements_along(graph_.value(value).type, range->second, rank))
      return tensor(value, std::nullopt);
    return tensor(value, range->second);
  }
  ExpressionArgument tensor(ValueId value, std::optional<base::IndexRange> window) {
    auto inside = tensor_of_.find(value);
    if (const ValueId rows = viewed(graph_, value); inside == tensor_of_.end() && rows != value) {
      if (reads_rows(graph_, rows, value)) inside = tensor_of_.find(rows);
    }
    if (inside != tensor_of_.end()) return inside->second;
    size_t index = 0;
    while (index < made_.operands.size() &&
           (made_.operands[index] != value || windows_[index] != window))
      ++index;
    if (index == made_.operands.size()) {
      made_.operands.push_back(value);
      windows_.push_back(window);
    }
    ExpressionArgument argument;
    argument.kind = ExpressionArgumentKind::Operand;
    argument.integer = static_cast<int64_t>(index);
    return argument;
  }

  const Graph& graph_;
  const std::vector<ValueId> results_;
  std::vector<int64_t> folded_;  // dims; none unless rows are folded
  ir::Shape row_shape_;
  ComputedKernel made_;
  std::vector<std::optional<base::IndexRange>> windows_;  // of the operands
  std::map<ValueId, ExpressionArgument> tensor_of_;       // what members made
  std::map<NodeId, base::IndexRange> range_of_;           // of members that make parts
  std::map<base::IndexRange, ExpressionArgument> conditions_;
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
  if (kernel.expression.tensors() > Expression::kMostTensors ||
      kernel.expression.operations.size() > Expression::kMostOperations)
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
    const ir::ValueList operands = graph.node(*member).operands;
    graph.erase(*member);
    for (const ValueId operand : operands)
      if (graph.contains(graph.value(operand).producer)) erase_views(graph, operand);
  }
}

}  // namespace dc::passes
