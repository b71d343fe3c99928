// Comparisons, logic, and what chooses between two values.
#pragma once

#include "runtime/kernel/scalar/language.h"

namespace dc::runtime::kernel::scalar {

#define DC_TEST_OF_TWO(Name, expression)                   \
  template <typename T>                                    \
  struct Name {                                            \
    static constexpr int kRounds = 3;                      \
    bool operator()(T x, T y) const { return expression; } \
  };
DC_TEST_OF_TWO(Equal, x == y)
DC_TEST_OF_TWO(NotEqual, x != y)
DC_TEST_OF_TWO(Less, x < y)
DC_TEST_OF_TWO(LessEqual, x <= y)
DC_TEST_OF_TWO(Greater, x > y)
DC_TEST_OF_TWO(GreaterEqual, x >= y)
DC_TEST_OF_TWO(And, (x != T{}) & (y != T{}))
DC_TEST_OF_TWO(Or, (x != T{}) | (y != T{}))
DC_TEST_OF_TWO(ExclusiveOr, (x != T{}) != (y != T{}))
#undef DC_TEST_OF_TWO

#define DC_TEST_OF_ONE(Name, expression)              \
  template <typename T>                               \
  struct Name {                                       \
    bool operator()(T x) const { return expression; } \
  };
DC_TEST_OF_ONE(Not, x == T{})
DC_TEST_OF_ONE(IsNan, x != x)
DC_TEST_OF_ONE(IsInfinite, x != T{} && x + x == x)
DC_TEST_OF_ONE(IsFinite, x - x == T{})
#undef DC_TEST_OF_ONE

template <typename T>
struct BitAnd {
  T operator()(T x, T y) const { return x & y; }
};
template <typename T>
struct BitOr {
  T operator()(T x, T y) const { return x | y; }
};
template <typename T>
struct BitXor {
  T operator()(T x, T y) const { return x ^ y; }
};
template <typename T>
struct BitNot {
  T bits;  // those that change: of a bool the lowest only
  T operator()(T x) const { return x ^ bits; }
};

template <typename T>
struct Where {
  static constexpr int kMask = 0;
  T operator()(bool condition, T x, T y) const { return condition ? x : y; }
};
template <typename T>
struct MaskedFill {
  static constexpr int kMask = 1;
  T operator()(T x, bool mask, T value) const { return mask ? value : x; }
};
template <typename T>
struct DropoutBackward {
  static constexpr int kMask = 1;
  T scale;
  T operator()(T g, bool mask) const { return g * (mask ? scale : T{}); }
};

}  // namespace dc::runtime::kernel::scalar
