// Exact arithmetic for shape expressions; no value on overflow or division by zero.
#pragma once

#include <optional>

#include "src/frontend/symbolic.h"

namespace dc::frontend {

using Exact = std::optional<Number>;

Exact add(Exact a, Exact b);
Exact multiply(Exact a, Exact b);
Exact divide(Exact a, Exact b);
Exact power(Exact base, Exact exponent);  // integer exponents
Exact floor_divide(Exact a, Exact b);     // rounds down, as Python's //
Exact modulo(Exact a, Exact b);           // has b's sign, as Python's %
Exact negate(Exact a);
std::optional<int> compare(Exact a, Exact b);  // -1, 0, 1
inline Exact truth(bool value) { return Number{value ? 1 : 0, 1}; }

}  // namespace dc::frontend
