#include "src/frontend/rational.h"

#include <numeric>

#include "src/base/checked.h"

namespace dc::frontend {
namespace {

Exact reduced(std::optional<int64_t> numerator, std::optional<int64_t> denominator) {
  if (!numerator || !denominator || *denominator == 0 || *numerator == INT64_MIN ||
      *denominator == INT64_MIN) {
    return std::nullopt;
  }
  const int64_t sign = *denominator < 0 ? -1 : 1;
  const int64_t common = std::gcd(*numerator, *denominator);
  return Number{sign * *numerator / common, sign * *denominator / common};
}

}  // namespace

Exact add(Exact a, Exact b) {
  if (!a || !b) return std::nullopt;
  const auto left = base::checked_mul(a->numerator, b->denominator);
  const auto right = base::checked_mul(b->numerator, a->denominator);
  if (!left || !right) return std::nullopt;
  return reduced(base::checked_add(*left, *right),
                 base::checked_mul(a->denominator, b->denominator));
}

Exact multiply(Exact a, Exact b) {
  if (!a || !b) return std::nullopt;
  return reduced(base::checked_mul(a->numerator, b->numerator),
                 base::checked_mul(a->denominator, b->denominator));
}

Exact divide(Exact a, Exact b) {
  if (!b || b->numerator == 0) return std::nullopt;
  return multiply(a, reduced(b->denominator, b->numerator));
}

Exact power(Exact base, Exact exponent) {
  if (!base || !exponent || !exponent->is_integer()) return std::nullopt;
  int64_t times = exponent->numerator;
  if (times < 0) return divide(Number{1, 1}, power(base, negate(exponent)));
  if (times > 64) return std::nullopt;
  Exact result = Number{1, 1};
  while (times-- > 0) result = multiply(result, base);
  return result;
}

Exact floor_divide(Exact a, Exact b) {
  const Exact quotient = divide(a, b);
  if (!quotient) return std::nullopt;
  const int64_t down = quotient->numerator / quotient->denominator;
  const bool cut = quotient->numerator < 0 && quotient->numerator % quotient->denominator != 0;
  return Number{down - (cut ? 1 : 0), 1};
}

Exact modulo(Exact a, Exact b) { return add(a, negate(multiply(floor_divide(a, b), b))); }

Exact negate(Exact a) { return multiply(a, Number{-1, 1}); }

std::optional<int> compare(Exact a, Exact b) {
  const Exact difference = add(a, negate(b));
  if (!difference) return std::nullopt;
  return difference->numerator < 0 ? -1 : difference->numerator > 0 ? 1 : 0;
}

}  // namespace dc::frontend
