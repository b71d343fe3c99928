#include "src/base/expression_phases.h"

#include <algorithm>

namespace dc::base {
namespace {

template <typename F>
void for_each_value(const ExpressionOperation& operation, F f) {
  for (const ExpressionArgument& argument : operation.arguments)
    if (argument.kind == ExpressionArgumentKind::Value) f(static_cast<size_t>(argument.integer));
}

}  // namespace

ExpressionPhases phases_of(const Expression& expression) {
  ExpressionPhases made;
  made.count = 1;
  for (size_t i = 0; i < expression.operations.size(); ++i) {
    const ExpressionOperation& operation = expression.operations[i];
    size_t first = 0;
    for_each_value(operation, [&](size_t read) { first = std::max(first, made.first[read]); });
    const bool folds = is_reduction(operation.overload);
    if (!operation.is_row) made.count = std::max(made.count, first + 1);
    made.first.push_back(first + (folds ? 1 : 0));
  }
  return made;
}

std::vector<bool> computed_in(const Expression& expression, const ExpressionPhases& phases,
                              size_t phase) {
  std::vector<bool> computed(expression.operations.size());
  for (const size_t result : expression.results)
    if (!expression.is_row_value(result) && phases.first[result] == phase) computed[result] = true;
  for (size_t i = expression.operations.size(); i-- > 0;) {
    const ExpressionOperation& operation = expression.operations[i];
    const bool folds = is_reduction(operation.overload) && phases.of_reduction(i) == phase;
    if (!computed[i] && !folds) continue;
    for_each_value(operation, [&](size_t read) {
      if (!expression.is_row_value(read)) computed[read] = true;
    });
  }
  return computed;
}

}  // namespace dc::base
