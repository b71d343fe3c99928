// ExpressionPhases: in which order an Expression is computed whose reductions are read again.
//
// A phase goes once over the elements of some rows: it computes what some reductions fold, and
// results. Row values that it completes are computed after it, and phases from the next on read
// them. What several phases need each computes again.
#pragma once

#include <cstddef>
#include <vector>

#include "src/base/expression.h"

namespace dc::base {

struct ExpressionPhases {
  // By value. Of a row value: the first phase that may read it, at most `count`. Of others, and of
  // what a reduction folds: the first phase in which it can be computed.
  std::vector<size_t> first;
  size_t count = 0;  // 1 without reductions that are read

  // The phase in which a reduction folds.
  size_t of_reduction(size_t reduction) const { return first[reduction] - 1; }
};

ExpressionPhases phases_of(const Expression& expression);

// By value: whether the phase computes it, for a reduction, a result or what these read. Row values
// are none of them.
std::vector<bool> computed_in(const Expression& expression, const ExpressionPhases& phases,
                              size_t phase);

}  // namespace dc::base
