// Arithmetic and elementary functions of one, two or three operands.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "runtime/kernel/native/math.h"
#include "runtime/kernel/native/pointwise/pointwise.h"

namespace dc::runtime::kernel::native {
namespace {

using One = std::array<std::string_view, 1>;
using Two = std::array<std::string_view, 2>;
using Three = std::array<std::string_view, 3>;

// An operator without numbers.
#define DC_UNARY(Name, expression)                                    \
  template <typename T>                                               \
  struct Name {                                                       \
    static constexpr One kNames{"self"};                              \
    explicit Name(Call&) {}                                           \
    auto operator()(T x) const { return static_cast<T>(expression); } \
  };
#define DC_BINARY(Name, expression)                                        \
  template <typename T>                                                    \
  struct Name {                                                            \
    static constexpr Two kNames{"self", "other"};                          \
    explicit Name(Call&) {}                                                \
    auto operator()(T x, T y) const { return static_cast<T>(expression); } \
  };

DC_UNARY(Neg, -x)
DC_UNARY(Same, x)
DC_UNARY(Abs, x < T{} ? -x : x + T{})
DC_UNARY(Reciprocal, T{1} / x)
DC_UNARY(Sqrt, std::sqrt(x))
DC_UNARY(Rsqrt, T{1} / std::sqrt(x))
DC_UNARY(Exp, math::exp(x))
DC_UNARY(Log, math::log(x))
DC_UNARY(Tanh, math::tanh(x))
DC_UNARY(Erf, math::erf(x))
DC_UNARY(Sigmoid, math::sigmoid(x))
DC_UNARY(Floor, std::floor(x))
DC_UNARY(Ceil, std::ceil(x))
DC_UNARY(Trunc, std::trunc(x))
DC_UNARY(Round, std::nearbyint(x))  // to even
DC_UNARY(Sign, (x > T{} ? T{1} : T{}) - (x < T{} ? T{1} : T{}))
DC_UNARY(Square, x* x)
DC_UNARY(Cube, x* x* x)
// PyTorch rounds the square of 16-bit elements to their type before the second product.
DC_UNARY(CubeOfBf16, widen(narrow_bf16(static_cast<float>(x* x))) * x)
DC_UNARY(CubeOfF16, widen(narrow_f16(static_cast<float>(x* x))) * x)
DC_UNARY(InverseSquare, T{1} / (x * x))

DC_BINARY(Mul, x* y)
DC_BINARY(Div, x / y)
DC_BINARY(Maximum, x > y || x != x ? x : y)
DC_BINARY(Minimum, x < y || x != x ? x : y)

template <typename T>
struct Sin {
  static constexpr One kNames{"self"};
  explicit Sin(Call&) {}
  T operator()(T x) const { return math::sin(x); }
  bool is_common(float x) const { return math::has_few_turns(x); }
  float of_common(float x) const { return math::sin_of_few_turns(x); }
};
template <typename T>
struct Cos {
  static constexpr One kNames{"self"};
  explicit Cos(Call&) {}
  T operator()(T x) const { return math::cos(x); }
  bool is_common(float x) const { return math::has_few_turns(x); }
  float of_common(float x) const { return math::cos_of_few_turns(x); }
};

template <typename T>
struct Add {
  static constexpr Two kNames{"self", "other"};
  explicit Add(Call& call) : alpha(call.scalar<T>("alpha", T{1})) {}
  T operator()(T x, T y) const { return x + alpha * y; }
  T alpha;
};
template <typename T>
struct Sub {
  static constexpr Two kNames{"self", "other"};
  explicit Sub(Call& call) : alpha(call.scalar<T>("alpha", T{1})) {}
  T operator()(T x, T y) const { return x - alpha * y; }
  T alpha;
};
template <typename T>
struct ReverseSub {
  static constexpr Two kNames{"self", "other"};
  explicit ReverseSub(Call& call) : alpha(call.scalar<T>("alpha", T{1})) {}
  T operator()(T x, T y) const { return y - alpha * x; }
  T alpha;
};

// The remainder with the sign of the divisor decides the quotient, as in Python. What is divided by
// the integer 0 gives 0.
template <typename T>
T floor_quotient(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    if (y == 0) return 0;
    if (y == -1) return static_cast<T>(-static_cast<uint64_t>(x));
    const T quotient = x / y;
    return x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient;
  } else {
    if (y == 0) return x / y;
    const T remainder = std::fmod(x, y);
    T quotient = (x - remainder) / y;
    if (remainder != 0 && (y < 0) != (remainder < 0)) quotient -= 1;
    if (quotient == 0) return std::copysign(T{}, x / y);
    const T floor = std::floor(quotient);
    return quotient - floor > T(0.5) ? floor + 1 : floor;
  }
}
template <typename T>
T truncated_quotient(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    if (y == 0) return 0;
    return y == -1 ? static_cast<T>(-static_cast<uint64_t>(x)) : x / y;
  } else {
    return std::trunc(x / y);
  }
}
DC_BINARY(FloorDivide, floor_quotient(x, y))
DC_BINARY(TruncDivide, truncated_quotient(x, y))

Made divide_by_mode(Call& call) {
  const std::string mode = call.text("rounding_mode", "");
  if (mode == "floor") return pointwise<FloorDivide>(call);
  if (mode == "trunc") return pointwise<TruncDivide>(call);
  return pointwise<Div, kReal>(call);
}

template <typename T>
T power(T x, T exponent) {
  if constexpr (std::is_integral_v<T>) {
    uint64_t result = 1, factor = static_cast<uint64_t>(x);
    if (exponent < 0) return x == 1 ? 1 : x == -1 ? (exponent % 2 != 0 ? -1 : 1) : 0;
    for (; exponent > 0; exponent >>= 1, factor *= factor)
      if ((exponent & 1) != 0) result *= factor;
    return static_cast<T>(result);
  } else {
    return static_cast<T>(std::pow(static_cast<double>(x), static_cast<double>(exponent)));
  }
}
template <typename T>
struct Power {
  static constexpr Two kNames{"self", "exponent"};
  static constexpr bool kRounds = true;
  explicit Power(Call&) {}
  T operator()(T x, T exponent) const { return power(x, exponent); }
};

Made power_by_number(Call& call) {
  const double exponent = call.number("exponent", 1);
  if (exponent == 1) return pointwise<Same>(call);
  if (exponent == 2) return pointwise<Square>(call);
  const base::DType dtype = call.output(0).dtype;
  if (exponent == 3 && dtype == base::DType::BF16) return pointwise<CubeOfBf16, kF32>(call);
  if (exponent == 3 && dtype == base::DType::F16) return pointwise<CubeOfF16, kF32>(call);
  if (exponent == 3) return pointwise<Cube>(call);
  if (exponent == 0.5) return pointwise<Sqrt, kReal>(call);
  if (exponent == -0.5) return pointwise<Rsqrt, kReal>(call);
  if (exponent == -1) return pointwise<Reciprocal, kReal>(call);
  if (exponent == -2) return pointwise<InverseSquare, kReal>(call);
  return pointwise<Power>(call);
}

template <typename T>
struct AddProduct {
  static constexpr Three kNames{"self", "tensor1", "tensor2"};
  explicit AddProduct(Call& call) : value(call.scalar<T>("value", T{1})) {}
  T operator()(T x, T y, T z) const { return x + value * y * z; }
  T value;
};
template <typename T>
struct AddQuotient {
  static constexpr Three kNames{"self", "tensor1", "tensor2"};
  explicit AddQuotient(Call& call) : value(call.scalar<T>("value", T{1})) {}
  T operator()(T x, T y, T z) const { return x + value * y / z; }
  T value;
};

// min and max where they are given; NaN stays NaN.
template <typename T>
struct Clamp {
  static constexpr One kNames{"self"};
  explicit Clamp(Call& call)
      : low(call.scalar<T>("min", std::numeric_limits<T>::has_infinity
                                      ? -std::numeric_limits<T>::infinity()
                                      : std::numeric_limits<T>::lowest())),
        high(call.scalar<T>("max", std::numeric_limits<T>::has_infinity
                                       ? std::numeric_limits<T>::infinity()
                                       : std::numeric_limits<T>::max())) {}
  T operator()(T x) const {
    x = x < low ? low : x;
    return x > high ? high : x;
  }
  T low, high;
};
template <typename T>
struct AtLeast {
  static constexpr Two kNames{"self", "min"};
  explicit AtLeast(Call&) {}
  T operator()(T x, T low) const { return x > low || x != x ? x : low; }
};
template <typename T>
struct AtMost {
  static constexpr Two kNames{"self", "max"};
  explicit AtMost(Call&) {}
  T operator()(T x, T high) const { return x < high || x != x ? x : high; }
};

constexpr Row kRows[] = {
    {"aten.abs.default", pointwise<Abs>},
    {"aten.add.Scalar", pointwise<Add>},
    {"aten.add.Tensor", pointwise<Add>},
    {"aten.addcdiv.default", pointwise<AddQuotient, kReal>},
    {"aten.addcmul.default", pointwise<AddProduct>},
    {"aten.ceil.default", pointwise<Ceil, kReal>},
    {"aten.clamp.default", pointwise<Clamp>},
    {"aten.clamp_max.Tensor", pointwise<AtMost>},
    {"aten.clamp_max.default", pointwise<AtMost>},
    {"aten.clamp_min.Tensor", pointwise<AtLeast>},
    {"aten.clamp_min.default", pointwise<AtLeast>},
    {"aten.cos.default", pointwise<Cos, kReal>},
    {"aten.div.Scalar", pointwise<Div, kReal>},
    {"aten.div.Scalar_mode", divide_by_mode},
    {"aten.div.Tensor", pointwise<Div, kReal>},
    {"aten.div.Tensor_mode", divide_by_mode},
    {"aten.erf.default", pointwise<Erf, kReal>},
    {"aten.exp.default", pointwise<Exp, kReal>},
    {"aten.floor.default", pointwise<Floor, kReal>},
    {"aten.floor_divide.Scalar", pointwise<FloorDivide>},
    {"aten.floor_divide.default", pointwise<FloorDivide>},
    {"aten.log.default", pointwise<Log, kReal>},
    {"aten.maximum.default", pointwise<Maximum>},
    {"aten.minimum.default", pointwise<Minimum>},
    {"aten.mul.Scalar", pointwise<Mul>},
    {"aten.mul.Tensor", pointwise<Mul>},
    {"aten.neg.default", pointwise<Neg>},
    {"aten.pow.Tensor_Scalar", power_by_number},
    {"aten.pow.Tensor_Tensor", pointwise<Power>},
    {"aten.pow.Scalar", pointwise<Power>},
    {"aten.reciprocal.default", pointwise<Reciprocal, kReal>},
    {"aten.round.default", pointwise<Round, kReal>},
    {"aten.rsqrt.default", pointwise<Rsqrt, kReal>},
    {"aten.rsub.Scalar", pointwise<ReverseSub>},
    {"aten.rsub.Tensor", pointwise<ReverseSub>},
    {"aten.sgn.default", pointwise<Sign>},
    {"aten.sigmoid.default", pointwise<Sigmoid, kReal>},
    {"aten.sign.default", pointwise<Sign>},
    {"aten.sin.default", pointwise<Sin, kReal>},
    {"aten.sqrt.default", pointwise<Sqrt, kReal>},
    {"aten.sub.Scalar", pointwise<Sub>},
    {"aten.sub.Tensor", pointwise<Sub>},
    {"aten.tanh.default", pointwise<Tanh, kReal>},
    {"aten.trunc.default", pointwise<Trunc, kReal>},
};

}  // namespace

std::span<const Row> arithmetic_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
