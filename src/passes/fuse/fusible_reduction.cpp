#include "src/passes/fuse/fusible_reduction.h"

#include <algorithm>
#include <numeric>

#include "src/base/expression_shape.h"
#include "src/base/shape.h"

namespace dc::passes {
namespace {

using base::ExpressionArgument;
using base::ExpressionArgumentKind;
using ir::Graph;
using ir::Node;
using ir::ValueId;

// What the value is a view of that has its elements in its order.
ValueId unviewed(const Graph& graph, ValueId value) {
  for (;;) {
    const Node& maker = graph.node(graph.value(value).producer);
    if (!ir::is_plain_view(maker) || maker.operands.size() != 1) return value;
    const ir::TensorType &seen = graph.value(value).type,
                         &whole = graph.value(maker.operands[0]).type;
    const bool same = seen.dtype == whole.dtype && seen.numel() == whole.numel() &&
                      base::is_contiguous(seen.shape, seen.strides) &&
                      base::is_contiguous(whole.shape, whole.strides);
    if (!same) return value;
    value = maker.operands[0];
  }
}

struct Overload {
  std::string_view name, over_dims;
};
constexpr Overload kOverloads[] = {
    {"aten.amax.default", "amax.default"},   {"aten.amin.default", "amin.default"},
    {"aten.max.default", "amax.default"},    {"aten.mean.default", "mean.dim"},
    {"aten.mean.dim", "mean.dim"},           {"aten.min.default", "amin.default"},
    {"aten.sum.default", "sum.dim_IntList"}, {"aten.sum.dim_IntList", "sum.dim_IntList"},
};

// The dims that the node folds of its operand, ascending.
std::vector<int64_t> dims_of(const Node& node, size_t rank) {
  std::vector<int64_t> dims;
  for (const ir::Arg& arg : node.args) {
    const auto* list = std::get_if<std::vector<int64_t>>(&arg.value);
    if (list != nullptr && arg.name == "dim") dims = *list;
  }
  for (int64_t& dim : dims) dim += dim < 0 ? static_cast<int64_t>(rank) : 0;
  if (dims.empty()) {
    dims.resize(rank);
    std::iota(dims.begin(), dims.end(), 0);
  }
  std::ranges::sort(dims);
  return dims;
}

base::Expression alone(std::string overload, std::vector<int64_t> dims) {
  ExpressionArgument self, dim;
  self.name = "self";
  self.kind = ExpressionArgumentKind::Operand;
  dim.name = "dim";
  dim.kind = ExpressionArgumentKind::Ints;
  dim.integers = std::move(dims);
  base::Expression expression;
  expression.operations.push_back({base::DType::F32, std::move(overload), {self, dim}});
  expression.results = {0};
  return expression;
}

// The dims of `shape` that are as many leading (or trailing) elements as `dims` of `of`.
std::optional<std::vector<int64_t>> dims_in(const ir::Shape& shape,
                                            const base::ExpressionShape& of) {
  const auto first = static_cast<ptrdiff_t>(of.first_column);
  const int64_t rows = std::accumulate(of.elements.begin(), of.elements.begin() + first, int64_t{1},
                                       std::multiplies<>());
  std::vector<int64_t> dims;
  int64_t before = 1;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const bool is_row = before * shape[dim] <= rows;
    if (is_row) before *= shape[dim];
    if (is_row != of.by_rows) dims.push_back(static_cast<int64_t>(dim));
    if (!is_row && before != rows) return std::nullopt;
  }
  return dims;
}

}  // namespace

std::optional<FusibleReduction> fusible_reduction(const Graph& graph, const Node& node) {
  if (node.kind != ir::OpKind::Aten || node.provider != base::Provider::Native) return {};
  const auto known = std::ranges::find(kOverloads, node.overload.name(), &Overload::name);
  if (known == std::end(kOverloads)) return {};
  if (node.operands.size() != 1 || node.results.size() != 1) return {};
  const ir::TensorType &operand = graph.value(node.operands[0]).type,
                       &result = graph.value(node.results[0]).type;
  if (operand.shape.empty() || operand.numel() == 0 ||
      !base::is_contiguous(operand.shape, operand.strides))
    return {};
  std::vector<int64_t> dims = dims_of(node, operand.shape.size());
  const std::string overload(known->over_dims);
  FusibleReduction made{unviewed(graph, node.operands[0]), overload, dims};
  const ir::Shape& shape = graph.value(made.value).type.shape;
  const std::span<const int64_t> operands[] = {operand.shape}, whole[] = {shape},
                                 results[] = {result.shape};
  const auto own = base::shape_of(alone(overload, std::move(dims)), operands, results);
  if (!own) return {};
  if (made.value == node.operands[0]) return made;
  auto of_value = dims_in(shape, *own);
  if (!of_value || of_value->empty()) return {};
  made.dims = *std::move(of_value);
  if (!base::shape_of(alone(overload, made.dims), whole, results)) return {};
  return made;
}

bool folds_trailing(std::span<const int64_t> dims, const ir::Shape& shape) {
  bool folded_before = false;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    if (shape[dim] == 1) continue;
    const bool folds = std::ranges::count(dims, static_cast<int64_t>(dim)) != 0;
    if (folded_before && !folds) return false;
    folded_before = folds;
  }
  return folded_before;
}

ValueId viewed(const Graph& graph, ValueId value) {
  for (;;) {
    const Node& maker = graph.node(graph.value(value).producer);
    if (!ir::is_plain_view(maker) || maker.operands.size() != 1) return value;
    value = maker.operands[0];
  }
}

bool reads_rows(const Graph& graph, ValueId rows, ValueId view) {
  const ir::TensorType &whole = graph.value(rows).type, &seen = graph.value(view).type;
  if (whole.dtype != seen.dtype || !base::is_contiguous(whole.shape, whole.strides)) return false;
  size_t kept = seen.shape.size();  // dims, before those that it is repeated along
  while (kept > 0 && (seen.shape[kept - 1] == 1 || seen.strides[kept - 1] == 0)) --kept;
  const std::span<const int64_t> sizes = seen.shape, strides = seen.strides;
  if (base::numel(sizes.first(kept)) != whole.numel() ||
      !base::is_contiguous(sizes.first(kept), strides.first(kept)))
    return false;
  if (seen.numel() > whole.numel()) return true;
  return fusible_reduction(graph, graph.node(graph.value(rows).producer)).has_value();
}

}  // namespace dc::passes
