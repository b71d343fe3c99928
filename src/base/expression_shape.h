// ExpressionShape: the shapes of an Expression's values, for those who check it, run it, or
// estimate its time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/base/expression.h"

namespace dc::base {

struct ExpressionShape {
  // Of all values but row values: the shape of the results that are none, else what the operands
  // are broadcast to.
  std::vector<int64_t> elements;
  std::vector<bool> folded;  // dims of `elements`; none without reductions
  // Of row values: dims from this one on are columns, those before it rows. So a row-major tensor
  // of this shape is a matrix, and each result is made of a row, or each of a column. Dims of one
  // element do not matter.
  size_t first_column = 0;
  bool by_rows = true;
};

// One shape for each operand and each result of the expression. Nothing if they do not belong
// together: results that are no row values have one shape, and operands can be broadcast to it;
// what is folded has elements, and is the leading or the trailing dims, so that elements are folded
// in the order in which they would lie in memory; results that are row values have the other dims.
// Dims of one element may come anywhere in these. Where operations read row values, the trailing
// dims are folded, and operands of operations for each row have one element along them. Ranges of
// indices are of the shape that all have.
using Shapes = std::span<const std::span<const int64_t>>;
std::optional<ExpressionShape> shape_of(const Expression& expression, Shapes operands,
                                        Shapes results);

// The sizes of an operand as if it had all indices along the dim of its window; without a window
// its own. For shapes that belong together.
std::vector<int64_t> whole_sizes(const Expression& expression, size_t operand,
                                 std::span<const int64_t> sizes, const ExpressionShape& shape);

// Of a row value's result with these strides: along each dim of `elements`, 0 along folded ones.
std::vector<int64_t> strides_of_reduced(const ExpressionShape& shape,
                                        std::span<const int64_t> sizes,
                                        std::span<const int64_t> strides);

}  // namespace dc::base
