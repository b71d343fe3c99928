#include "src/base/expression_shape.h"

#include <algorithm>

#include "src/base/shape.h"

namespace dc::base {
namespace {

// What all are broadcast to; wrong where they cannot be.
std::vector<int64_t> broadcast(Shapes shapes) {
  std::vector<int64_t> made;
  for (const std::span<const int64_t> shape : shapes) {
    if (shape.size() > made.size()) made.insert(made.begin(), shape.size() - made.size(), 1);
    const size_t added = made.size() - shape.size();
    for (size_t dim = 0; dim < shape.size(); ++dim)
      if (shape[dim] != 1) made[added + dim] = shape[dim];
  }
  return made;
}

// The dim of an operand that a dim of values of `rank` dims is, where it has that.
std::optional<size_t> own_dim(int64_t dim, std::span<const int64_t> sizes, size_t rank) {
  const int64_t own = dim - static_cast<int64_t>(rank) + static_cast<int64_t>(sizes.size());
  if (own < 0 || own >= static_cast<int64_t>(sizes.size())) return std::nullopt;
  return static_cast<size_t>(own);
}

// What operands are broadcast to. What one has in its window says nothing of the dim's size.
std::vector<int64_t> broadcast_with_windows(const Expression& expression, Shapes operands) {
  size_t rank = 0;
  for (const std::span<const int64_t> operand : operands) rank = std::max(rank, operand.size());
  std::vector<std::vector<int64_t>> sizes;
  for (const std::span<const int64_t> operand : operands)
    sizes.emplace_back(operand.begin(), operand.end());
  for (const auto& [operand, range] : expression.windows)
    if (const auto dim = own_dim(range.dim, sizes[operand], rank)) sizes[operand][*dim] = 1;
  const std::vector<std::span<const int64_t>> all(sizes.begin(), sizes.end());
  return broadcast(all);
}

// Whether the ranges are of the dim, and operands have as many indices as their windows.
bool ranges_fit(const Expression& expression, Shapes operands, std::span<const int64_t> elements) {
  const auto is_in = [&](const IndexRange& range) {
    return range.dim < static_cast<int64_t>(elements.size()) &&
           range.end <= elements[static_cast<size_t>(range.dim)];
  };
  for (const ExpressionOperation& operation : expression.operations)
    if (const auto range = index_range(operation); range && !is_in(*range)) return false;
  return std::ranges::all_of(expression.windows, [&](const auto& window) {
    const auto& [operand, range] = window;
    const auto dim = own_dim(range.dim, operands[operand], elements.size());
    return is_in(range) && dim && operands[operand][*dim] == range.end - range.begin;
  });
}

// Dims of several elements; `folded`: those that stay.
std::vector<int64_t> large_dims(std::span<const int64_t> sizes, const std::vector<bool>* folded) {
  std::vector<int64_t> made;
  for (size_t dim = 0; dim < sizes.size(); ++dim)
    if (sizes[dim] != 1 && (folded == nullptr || !(*folded)[dim])) made.push_back(sizes[dim]);
  return made;
}

// Whether `dims` are leading or trailing ones.
bool fold(ExpressionShape& shape, std::span<const int64_t> dims) {
  const size_t count = shape.elements.size();
  shape.folded.assign(count, false);
  for (const int64_t dim : dims) {
    if (dim >= static_cast<int64_t>(count)) return false;
    shape.folded[static_cast<size_t>(dim)] = true;
  }
  std::vector<size_t> large;  // dims of several elements
  for (size_t dim = 0; dim < count; ++dim)
    if (shape.elements[dim] != 1) large.push_back(dim);
  shape.by_rows = large.empty() || shape.folded[large.back()];
  const auto is_column = [&](size_t dim) { return shape.folded[dim] == shape.by_rows; };
  const auto first = std::ranges::find_if(large, is_column);
  shape.first_column = first == large.end() ? count : *first;
  return std::all_of(first, large.end(), is_column) && numel(shape.elements) > 0;
}

// Whether the operand has one element along folded dims.
bool is_of_rows(const ExpressionShape& shape, std::span<const int64_t> operand) {
  const size_t added = shape.elements.size() - operand.size();
  for (size_t dim = 0; dim < operand.size(); ++dim)
    if (shape.folded[added + dim] && operand[dim] != 1) return false;
  return true;
}

// Whether all that is computed for each row can be.
bool rows_fit(const Expression& expression, const ExpressionShape& shape, Shapes operands) {
  if (!expression.reads_rows()) return true;
  if (!shape.by_rows) return false;
  return std::ranges::all_of(expression.operations, [&](const ExpressionOperation& operation) {
    return !operation.is_row || std::ranges::all_of(operation.arguments, [&](const auto& read) {
      return read.kind != ExpressionArgumentKind::Operand ||
             is_of_rows(shape, operands[static_cast<size_t>(read.integer)]);
    });
  });
}

}  // namespace

std::optional<ExpressionShape> shape_of(const Expression& expression, Shapes operands,
                                        Shapes results) {
  if (operands.size() != expression.operands() || results.size() != expression.results.size())
    return std::nullopt;
  ExpressionShape shape;
  const auto is_row = [&](size_t result) {
    return expression.is_row_value(expression.results[result]);
  };
  bool is_known = false;
  for (size_t i = 0; i < results.size() && !is_known; ++i) {
    if (is_row(i)) continue;
    shape.elements.assign(results[i].begin(), results[i].end());
    is_known = true;
  }
  if (!is_known) shape.elements = broadcast_with_windows(expression, operands);
  if (!ranges_fit(expression, operands, shape.elements)) return std::nullopt;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!broadcasts_to(whole_sizes(expression, i, operands[i], shape), shape.elements))
      return std::nullopt;
  }
  const auto first = std::ranges::find_if(
      expression.operations, [](const auto& each) { return is_reduction(each.overload); });
  if (first != expression.operations.end() && !fold(shape, folded_dims(*first)))
    return std::nullopt;
  if (!rows_fit(expression, shape, operands)) return std::nullopt;
  for (size_t i = 0; i < results.size(); ++i) {
    const bool fits =
        is_row(i) ? large_dims(results[i], nullptr) == large_dims(shape.elements, &shape.folded)
                  : std::ranges::equal(results[i], shape.elements);
    if (!fits) return std::nullopt;
  }
  return shape;
}

std::vector<int64_t> whole_sizes(const Expression& expression, size_t operand,
                                 std::span<const int64_t> sizes, const ExpressionShape& shape) {
  std::vector<int64_t> whole(sizes.begin(), sizes.end());
  const auto window = expression.windows.find(operand);
  if (window == expression.windows.end()) return whole;
  const int64_t dim = window->second.dim;
  whole[*own_dim(dim, sizes, shape.elements.size())] = shape.elements[static_cast<size_t>(dim)];
  return whole;
}

std::vector<int64_t> strides_of_reduced(const ExpressionShape& shape,
                                        std::span<const int64_t> sizes,
                                        std::span<const int64_t> strides) {
  std::vector<int64_t> made(shape.elements.size(), 0);
  size_t next = 0;
  for (size_t dim = 0; dim < made.size(); ++dim) {
    if (shape.folded[dim] || shape.elements[dim] == 1) continue;
    while (sizes[next] == 1) ++next;
    made[dim] = strides[next++];
  }
  return made;
}

}  // namespace dc::base
