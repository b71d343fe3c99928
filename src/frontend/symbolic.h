// Expressions over the symbols of dynamic shapes, in the two forms that archives hold.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "src/base/status.h"

namespace dc::frontend {

// A fraction, in lowest terms with a positive denominator: exact as long as it fits. Truth is 1 or
// 0.
struct Number {
  int64_t numerator = 0, denominator = 1;
  bool is_integer() const { return denominator == 1; }
  double real() const { return static_cast<double>(numerator) / static_cast<double>(denominator); }
};

using Symbols = std::map<std::string, int64_t, std::less<>>;

// The symbols of an expression in SymPy's srepr: "Add(Symbol('s0', integer=True), Integer(-1))".
std::set<std::string> symbols_of(std::string_view expression);

// The value of such an expression: sums, products, powers, quotients, remainders, extremes,
// comparisons. BadInput if it overflows, divides by zero or holds anything else.
base::Result<Number> evaluate(std::string_view expression, const Symbols& symbols);

// The size of a dim of an input.
using SizeOf = std::function<std::optional<int64_t>(std::string_view input, int64_t dim)>;

// A condition of guards_code: Python over sizes, "L['x'].size()[0] % 8 == 0". No value if it is not
// understood.
std::optional<bool> holds(std::string_view guard, const SizeOf& size_of);

}  // namespace dc::frontend
