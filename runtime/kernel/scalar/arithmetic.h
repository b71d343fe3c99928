// Arithmetic and elementary functions of one, two or three operands.
//
// T is float, double or int64_t. Integers wrap.
#pragma once

#include "runtime/kernel/scalar/elements.h"
#include "runtime/kernel/scalar/math.h"

namespace dc::runtime::kernel::scalar {

template <typename T>
inline T plus(T x, T y) {
  if constexpr (kFloating<T>) {
    return x + y;
  } else {
    return static_cast<T>(static_cast<uint64_t>(x) + static_cast<uint64_t>(y));
  }
}
template <typename T>
inline T minus(T x, T y) {
  if constexpr (kFloating<T>) {
    return x - y;
  } else {
    return static_cast<T>(static_cast<uint64_t>(x) - static_cast<uint64_t>(y));
  }
}
template <typename T>
inline T times(T x, T y) {
  if constexpr (kFloating<T>) {
    return x * y;
  } else {
    return static_cast<T>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y));
  }
}
template <typename T>
inline T negative(T x) {
  if constexpr (kFloating<T>) {
    return -x;
  } else {
    return static_cast<T>(-static_cast<uint64_t>(x));
  }
}

// The sine of x and so many quarter turns more. Of floats that few turns tell apart, the same bits
// in less time: is_common(), of_common().
template <typename T, uint64_t kQuarters>
struct Sine {
  T operator()(T x) const { return kQuarters == 0 ? math::sin(x) : math::cos(x); }
  bool is_common(float x) const { return math::has_few_turns(x); }
  float of_common(float x) const { return math::sine(math::few_turns(x), kQuarters); }
};
template <typename T>
struct Sin : Sine<T, 0> {};
template <typename T>
struct Cos : Sine<T, 1> {};

// An operator without numbers.
#define DC_UNARY(Name, expression)                                 \
  template <typename T>                                            \
  struct Name {                                                    \
    T operator()(T x) const { return static_cast<T>(expression); } \
  };
#define DC_BINARY(Name, expression)                                     \
  template <typename T>                                                 \
  struct Name {                                                         \
    T operator()(T x, T y) const { return static_cast<T>(expression); } \
  };

DC_UNARY(Same, x)
DC_UNARY(Abs, x < T{} ? negative(x) : plus(x, T{}))
DC_UNARY(Reciprocal, T{1} / x)
DC_UNARY(Sqrt, sqrt(x))
DC_UNARY(Rsqrt, T{1} / sqrt(x))
DC_UNARY(Exp, math::exp(x))
DC_UNARY(Log, math::log(x))
DC_UNARY(Tanh, math::tanh(x))
DC_UNARY(Erf, math::erf(x))
DC_UNARY(Floor, floor(x))
DC_UNARY(Ceil, ceil(x))
DC_UNARY(Trunc, trunc(x))
DC_UNARY(Round, nearbyint(x))  // to even
DC_UNARY(Sign, (x > T{} ? T{1} : T{}) - (x < T{} ? T{1} : T{}))
DC_UNARY(Square, times(x, x))
DC_UNARY(Cube, times(times(x, x), x))
// PyTorch rounds the square of 16-bit elements to their type before the second product.
DC_UNARY(CubeOfBf16, widen(narrow_bf16(static_cast<float>(x* x))) * x)
DC_UNARY(CubeOfF16, widen(narrow_f16(static_cast<float>(x* x))) * x)
DC_UNARY(InverseSquare, T{1} / (x * x))

template <typename T>
struct Sigmoid {
  T operator()(T x) const { return math::sigmoid(x); }
  bool is_moderate(float x) const { return math::is_moderate(x); }
  float of_moderate(float x) const { return math::sigmoid_of_moderate(x); }
};

template <typename T>
struct Neg {
  T operator()(T x) const { return negative(x); }
  // Of 16 bits only the sign changes.
  BF16 of_bf16(BF16 x) const {
    const auto magnitude = static_cast<uint16_t>(x.bits & 0x7fffu);
    const auto opposite = static_cast<uint16_t>(x.bits ^ 0x8000u);
    return BF16{magnitude > 0x7f80u ? uint16_t{0x7fc0u} : opposite};
  }
};

// A tensor without dims is rounded to the type of 16-bit elements that it is multiplied with or
// divided by; as the second operand it is not, and neither is a number.
#define DC_PRODUCT(Name, expression)                    \
  template <typename T>                                 \
  struct Name {                                         \
    static constexpr int kRounds = 1;                   \
    T operator()(T x, T y) const { return expression; } \
  };
DC_PRODUCT(Mul, times(x, y))
DC_PRODUCT(Div, x / y)
DC_BINARY(Maximum, x > y || x != x ? x : y)
DC_BINARY(Minimum, x < y || x != x ? x : y)

// A number, or a tensor without dims, that is added to 16-bit elements is rounded to their type.
template <typename T>
struct Add {
  static constexpr int kRounds = 3;
  T alpha;
  T operator()(T x, T y) const { return plus(x, times(alpha, y)); }
};
template <typename T>
struct Sub {
  static constexpr int kRounds = 3;
  T alpha;
  T operator()(T x, T y) const { return minus(x, times(alpha, y)); }
};
template <typename T>
struct ReverseSub {
  static constexpr int kRounds = 3;
  T alpha;
  T operator()(T x, T y) const { return minus(y, times(alpha, x)); }
};

// The remainder with the sign of the divisor decides the quotient, as in Python. What is divided by
// the integer 0 gives 0.
template <typename T>
inline T floor_quotient(T x, T y) {
  if constexpr (!kFloating<T>) {
    if (y == 0) return 0;
    if (y == -1) return negative(x);
    const T quotient = x / y;
    return x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient;
  } else {
    if (y == 0) return x / y;
    const T remainder = fmod(x, y);
    T quotient = (x - remainder) / y;
    if (remainder != 0 && (y < 0) != (remainder < 0)) quotient -= 1;
    if (quotient == 0) return copysign(T{}, x / y);
    const T below = floor(quotient);
    return quotient - below > T(0.5) ? below + 1 : below;
  }
}
template <typename T>
inline T truncated_quotient(T x, T y) {
  if constexpr (!kFloating<T>) {
    if (y == 0) return 0;
    return y == -1 ? negative(x) : x / y;
  } else {
    return trunc(x / y);
  }
}
DC_PRODUCT(FloorDivide, floor_quotient(x, y))
DC_PRODUCT(TruncDivide, truncated_quotient(x, y))
#undef DC_PRODUCT

template <typename T>
inline T power(T x, T exponent) {
  if constexpr (!kFloating<T>) {
    uint64_t result = 1, factor = static_cast<uint64_t>(x);
    if (exponent < 0) return x == 1 ? 1 : x == -1 ? (exponent % 2 != 0 ? -1 : 1) : 0;
    for (; exponent > 0; exponent >>= 1, factor *= factor)
      if ((exponent & 1) != 0) result *= factor;
    return static_cast<T>(result);
  } else {
    return static_cast<T>(pow(static_cast<double>(x), static_cast<double>(exponent)));
  }
}
template <typename T>
struct Power {
  static constexpr int kRounds = 3;
  T operator()(T x, T exponent) const { return power(x, exponent); }
};

template <typename T>
struct AddProduct {
  T value;
  T operator()(T x, T y, T z) const { return plus(x, times(times(value, y), z)); }
};
template <typename T>
struct AddQuotient {
  T value;
  T operator()(T x, T y, T z) const { return x + value * y / z; }
};

// NaN stays NaN, and a bound that is NaN makes all NaN.
template <typename T>
inline T clamped(T x, T low, T high) {
  x = x < low || low != low ? low : x;
  return x > high || high != high ? high : x;
}
template <typename T>
struct Clamp {
  T low, high;
  T operator()(T x) const { return clamped(x, low, high); }
};
DC_BINARY(AtLeast, x > y || x != x ? x : y)
DC_BINARY(AtMost, x < y || x != x ? x : y)

#undef DC_UNARY
#undef DC_BINARY

}  // namespace dc::runtime::kernel::scalar
