#include "tests/random/elementwise_ops.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <type_traits>

namespace dc::test {
namespace {

using Kind = ElementwiseArgument::Kind;
using Takes = ElementwiseOp::Takes;
using Gives = ElementwiseOp::Gives;
using Bits = ElementwiseOp::Bits;
using enum ElementwiseOp::Takes;
using enum ElementwiseOp::Gives;
using enum ElementwiseOp::Bits;

// "t:self t:other a:alpha": the kind of each argument and its name.
std::vector<ElementwiseArgument> read_arguments(std::string_view text) {
  constexpr std::string_view kLetters = "tmnawd";
  std::vector<ElementwiseArgument> arguments;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    arguments.push_back({static_cast<Kind>(kLetters.find(text[0])), text.substr(2, end - 2)});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return arguments;
}

// The remainder has the sign of the divisor. By the integer 0: 0.
template <typename T>
T floor_of_quotient(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    if (y == 0) return 0;
    if (y == -1) return static_cast<T>(0 - static_cast<uint64_t>(x));
    return x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0);
  } else {
    if (y == 0) return x / y;
    const T remainder = std::fmod(x, y);
    T quotient = (x - remainder) / y;
    if (remainder != 0 && std::signbit(remainder) != std::signbit(y)) quotient -= 1;
    if (quotient == 0) return std::copysign(T{0}, x / y);
    const T floor = std::floor(quotient);
    return quotient - floor > T(0.5) ? floor + 1 : floor;
  }
}
template <typename T>
T whole_part_of_quotient(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    if (y == 0) return 0;
    return y == -1 ? static_cast<T>(0 - static_cast<uint64_t>(x)) : x / y;
  } else {
    return std::trunc(x / y);
  }
}

template <typename T>
T power(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 == 0 ? 1 : -1) : 0;
    uint64_t result = 1;
    for (uint64_t factor = static_cast<uint64_t>(x); y > 0; y /= 2, factor *= factor)
      if (y % 2 == 1) result *= factor;
    return static_cast<T>(result);
  } else {
    return std::pow(x, y);
  }
}

// By roots where the exponent says so: they differ for -0 and -infinity.
template <typename T>
T power_of_number(T x, T y) {
  if constexpr (std::is_floating_point_v<T>) {
    if (y == T(0.5)) return std::sqrt(x);
    if (y == T(-0.5)) return 1 / std::sqrt(x);
  }
  return power(x, y);
}

template <typename T>
T quotient(T x, T y) {
  if constexpr (std::is_integral_v<T>)
    return 0;  // such operators compute in floating point
  else
    return x / y;
}

template <typename T>
T bits_of(T x, T y, char what) {
  if constexpr (std::is_integral_v<T>) {
    return what == '&' ? x & y : what == '|' ? x | y : x ^ y;
  } else {
    return x;
  }
}

// Integers wrap.
template <typename T>
T sum(T x, T y) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(x) + static_cast<uint64_t>(y));
  else
    return x + y;
}
template <typename T>
T product(T x, T y) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y));
  else
    return x * y;
}
template <typename T>
T negative(T x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(0 - static_cast<uint64_t>(x));
  else
    return -x;
}
template <typename T>
T difference(T x, T y) {
  if constexpr (std::is_integral_v<T>)
    return sum(x, negative(y));
  else
    return x - y;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
template <typename T>
bool is_nan(T x) {
  return x != x;
}
template <typename T>
bool is_infinite(T x) {
  if constexpr (std::is_integral_v<T>) return false;
  return std::abs(x) == std::numeric_limits<T>::infinity();
}

double gelu(double x, bool by_tanh) {
  const double inner = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return by_tanh ? 0.5 * x * (1 + std::tanh(inner)) : 0.5 * x * (1 + std::erf(x * M_SQRT1_2));
}
double gelu_slope(double x, bool by_tanh) {
  if (!by_tanh)
    return 0.5 * (1 + std::erf(x * M_SQRT1_2)) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
  const double factor = std::sqrt(2 / M_PI), t = std::tanh(factor * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * factor * (1 + 3 * 0.044715 * x * x);
}

template <typename F>
ElementwiseOp op(std::string_view overload, std::string_view arguments, Takes takes, Gives gives,
                 Bits bits, F expression) {
  return {overload,  read_arguments(arguments), takes, gives, bits, expression, expression,
          expression};
}

// `v`: Operands; T: the type that is computed in.
#define DC_OP(name, arguments, takes, gives, bits, expression)        \
  op("aten." name, arguments, takes, gives, bits, [](const auto& v) { \
    using T [[maybe_unused]] = std::remove_cvref_t<decltype(v.x)>;    \
    return static_cast<T>(expression);                                \
  })

// Between a tensor and a tensor, and between a tensor and a number.
#define DC_TWO(name, arguments, takes, gives, bits, expression)                      \
  DC_OP(name ".Tensor", "t:self t:other" arguments, takes, gives, bits, expression), \
      DC_OP(name ".Scalar", "t:self n:other" arguments, takes, gives, bits, expression)

std::vector<ElementwiseOp> make_ops() {
  return {
      DC_OP("abs.default", "t:self", Any, Common, Exact, v.x < T{} ? negative(v.x) : sum(v.x, T{})),
      DC_TWO("add", " a:alpha", Any, Common, Exact, sum(v.x, product(v.a, v.y))),
      DC_OP("addcdiv.default", "t:self t:tensor1 t:tensor2 a:value", Floating, Common, Exact,
            sum(v.x, quotient(product(v.a, v.y), v.z))),
      DC_OP("addcmul.default", "t:self t:tensor1 t:tensor2 a:value", Any, Common, Exact,
            sum(v.x, product(product(v.a, v.y), v.z))),
      DC_TWO("bitwise_and", "", Integral, Common, Exact, bits_of(v.x, v.y, '&')),
      DC_TWO("bitwise_or", "", Integral, Common, Exact, bits_of(v.x, v.y, '|')),
      DC_TWO("bitwise_xor", "", Integral, Common, Exact, bits_of(v.x, v.y, '^')),
      DC_OP("bitwise_not.default", "t:self", Integral, Common, Exact,
            v.of_bools ? 1 - v.x : -1 - v.x),
      DC_OP("ceil.default", "t:self", Floating, Common, Exact, std::ceil(v.x)),
      DC_OP("clamp.default", "t:self a:min a:max", Any, Common, Exact,
            v.x < v.a   ? v.a
            : v.x > v.b ? v.b
                        : v.x),
      DC_OP("clamp_max.Tensor", "t:self t:max", Any, Common, Exact,
            v.x < v.y || is_nan(v.x) ? v.x : v.y),
      DC_OP("clamp_max.default", "t:self n:max", Any, Common, Exact,
            v.x < v.y || is_nan(v.x) ? v.x : v.y),
      DC_OP("clamp_min.Tensor", "t:self t:min", Any, Common, Exact,
            v.x > v.y || is_nan(v.x) ? v.x : v.y),
      DC_OP("clamp_min.default", "t:self n:min", Any, Common, Exact,
            v.x > v.y || is_nan(v.x) ? v.x : v.y),
      DC_OP("cos.default", "t:self", Real, Common, Close, std::cos(static_cast<double>(v.x))),
      DC_TWO("div", "", Real, Common, Exact, quotient(v.x, v.y)),
      DC_OP("div.Scalar_mode", "t:self n:other w:rounding_mode", Any, Common, Exact,
            v.has_word ? whole_part_of_quotient(v.x, v.y) : floor_of_quotient(v.x, v.y)),
      DC_OP("div.Tensor_mode", "t:self t:other w:rounding_mode", Any, Common, Exact,
            v.has_word ? whole_part_of_quotient(v.x, v.y) : floor_of_quotient(v.x, v.y)),
      DC_TWO("eq", "", Any, Truth, Exact, v.x == v.y),
      DC_OP("erf.default", "t:self", Real, Common, Close, std::erf(static_cast<double>(v.x))),
      DC_OP("exp.default", "t:self", Real, Common, Close, std::exp(static_cast<double>(v.x))),
      DC_OP("floor.default", "t:self", Floating, Common, Exact, std::floor(v.x)),
      DC_OP("floor_divide.Scalar", "t:self n:other", Any, Common, Exact,
            floor_of_quotient(v.x, v.y)),
      DC_OP("floor_divide.default", "t:self t:other", Any, Common, Exact,
            floor_of_quotient(v.x, v.y)),
      DC_TWO("ge", "", Any, Truth, Exact, v.x >= v.y),
      DC_OP("gelu.default", "t:self w:approximate", Floating, Common, Close,
            gelu(static_cast<double>(v.x), v.has_word)),
      DC_OP("gelu_backward.default", "t:grad_output t:self w:approximate", Floating, Common, Close,
            static_cast<double>(v.x) * gelu_slope(static_cast<double>(v.y), v.has_word)),
      DC_TWO("gt", "", Any, Truth, Exact, v.x > v.y),
      DC_OP("hardtanh.default", "t:self a:min_val a:max_val", Floating, Common, Exact,
            v.x < v.a   ? v.a
            : v.x > v.b ? v.b
                        : v.x),
      DC_OP("hardtanh_backward.default", "t:grad_output t:self a:min_val a:max_val", Floating,
            Common, Exact, v.y <= v.a || v.y >= v.b ? T{} : v.x),
      DC_OP("isfinite.default", "t:self", Any, Truth, Exact, !is_nan(v.x) && !is_infinite(v.x)),
      DC_OP("isinf.default", "t:self", Floating, Truth, Exact, is_infinite(v.x)),
      DC_OP("isnan.default", "t:self", Any, Truth, Exact, is_nan(v.x)),
      DC_TWO("le", "", Any, Truth, Exact, v.x <= v.y),
      DC_OP("leaky_relu.default", "t:self a:negative_slope", Floating, Common, Exact,
            v.x > T{} ? v.x : v.x * v.a),
      DC_OP("leaky_relu_backward.default", "t:grad_output t:self a:negative_slope", Floating,
            Common, Exact, v.y > T{} ? v.x : v.x * v.a),
      DC_OP("log.default", "t:self", Real, Common, Close, std::log(static_cast<double>(v.x))),
      DC_OP("log_sigmoid_backward.default", "t:grad_output t:self t:buffer", Floating, Common,
            Exact,
            product(difference(v.y < T{} ? T{1} : T{},
                               product(v.y < T{} ? T{1} : T{-1}, quotient(v.z, T{1} + v.z))),
                    v.x)),
      DC_OP("logical_and.default", "t:self t:other", Any, Truth, Exact, v.x != T{} && v.y != T{}),
      DC_OP("logical_not.default", "t:self", Any, Truth, Exact, v.x == T{}),
      DC_OP("logical_or.default", "t:self t:other", Any, Truth, Exact, v.x != T{} || v.y != T{}),
      DC_OP("logical_xor.default", "t:self t:other", Any, Truth, Exact,
            (v.x != T{}) != (v.y != T{})),
      DC_TWO("lt", "", Any, Truth, Exact, v.x < v.y),
      DC_OP("masked_fill.Scalar", "t:self m:mask n:value", Any, Common, Exact, v.mask ? v.y : v.x),
      DC_OP("masked_fill.Tensor", "t:self m:mask t:value", Any, Common, Exact, v.mask ? v.y : v.x),
      DC_OP("maximum.default", "t:self t:other", Any, Common, Exact,
            v.x > v.y || is_nan(v.x) ? v.x : v.y),
      DC_OP("minimum.default", "t:self t:other", Any, Common, Exact,
            v.x < v.y || is_nan(v.x) ? v.x : v.y),
      DC_TWO("mul", "", Any, Common, Exact, product(v.x, v.y)),
      DC_OP("native_dropout_backward.default", "t:grad_output m:mask a:scale", Floating, Common,
            Exact, v.x * (v.mask ? v.a : T{})),
      DC_TWO("ne", "", Any, Truth, Exact, v.x != v.y),
      DC_OP("neg.default", "t:self", Any, Common, Exact, negative(v.x)),
      DC_OP("pow.Scalar", "n:self t:exponent", Any, Common, Close, power(v.x, v.y)),
      DC_OP("pow.Tensor_Scalar", "t:self n:exponent", Any, Common, Close,
            power_of_number(v.x, v.y)),
      DC_OP("pow.Tensor_Tensor", "t:self t:exponent", Any, Common, Close, power(v.x, v.y)),
      DC_OP("reciprocal.default", "t:self", Real, Common, Exact, quotient(T{1}, v.x)),
      DC_OP("relu.default", "t:self", Any, Common, Exact, v.x < T{} ? T{} : v.x),
      DC_OP("round.default", "t:self", Floating, Common, Exact,
            std::nearbyint(v.x)),  // to even
      DC_OP("rsqrt.default", "t:self", Real, Common, Exact,
            quotient(T{1}, static_cast<T>(std::sqrt(v.x)))),
      DC_OP("rsub.Scalar", "t:self n:other a:alpha", Any, Common, Exact,
            difference(v.y, product(v.a, v.x))),
      DC_OP("rsub.Tensor", "t:self t:other a:alpha", Any, Common, Exact,
            difference(v.y, product(v.a, v.x))),
      DC_OP("sgn.default", "t:self", Any, Common, Exact,
            v.x > T{}   ? 1
            : v.x < T{} ? -1
                        : 0),
      DC_OP("sigmoid.default", "t:self", Real, Common, Close, sigmoid(static_cast<double>(v.x))),
      DC_OP("sigmoid_backward.default", "t:grad_output t:output", Floating, Common, Exact,
            v.x * (T{1} - v.y) * v.y),
      DC_OP("sign.default", "t:self", Any, Common, Exact,
            v.x > T{}   ? 1
            : v.x < T{} ? -1
                        : 0),
      DC_OP("silu.default", "t:self", Floating, Common, Close,
            static_cast<double>(v.x) / (1 + std::exp(-static_cast<double>(v.x)))),
      DC_OP("silu_backward.default", "t:grad_output t:self", Floating, Common, Close,
            static_cast<double>(v.x) * sigmoid(static_cast<double>(v.y)) *
                (1 + static_cast<double>(v.y) * (1 - sigmoid(static_cast<double>(v.y))))),
      DC_OP("sin.default", "t:self", Real, Common, Close, std::sin(static_cast<double>(v.x))),
      DC_OP("softplus.default", "t:self a:beta a:threshold", Floating, Common, Close,
            v.x * v.a > v.b
                ? static_cast<double>(v.x)
                : std::log1p(std::exp(static_cast<double>(v.x * v.a))) / static_cast<double>(v.a)),
      DC_OP("softplus_backward.default", "t:grad_output t:self a:beta a:threshold", Floating,
            Common, Close,
            v.y * v.a > v.b ? static_cast<double>(v.x)
                            : static_cast<double>(v.x) * sigmoid(static_cast<double>(v.y * v.a))),
      DC_OP("sqrt.default", "t:self", Real, Common, Exact, std::sqrt(v.x)),
      DC_TWO("sub", " a:alpha", Any, Common, Exact, difference(v.x, product(v.a, v.y))),
      DC_OP("tanh.default", "t:self", Real, Common, Close, std::tanh(static_cast<double>(v.x))),
      DC_OP("tanh_backward.default", "t:grad_output t:output", Floating, Common, Exact,
            v.x * (T{1} - v.y * v.y)),
      DC_OP("threshold_backward.default", "t:grad_output t:self a:threshold", Any, Common, Exact,
            v.y <= v.a ? T{} : v.x),
      DC_OP("trunc.default", "t:self", Floating, Common, Exact, std::trunc(v.x)),
      DC_OP("where.Scalar", "m:condition n:self n:other", Any, Common, Exact, v.mask ? v.x : v.y),
      DC_OP("where.ScalarOther", "m:condition t:self n:other", Any, Common, Exact,
            v.mask ? v.x : v.y),
      DC_OP("where.ScalarSelf", "m:condition n:self t:other", Any, Common, Exact,
            v.mask ? v.x : v.y),
      DC_OP("where.self", "m:condition t:self t:other", Any, Common, Exact, v.mask ? v.x : v.y),
      DC_OP("_to_copy.default", "t:self d:dtype", Any, Type, Exact, v.x),
      DC_OP("clone.default", "t:self", Any, Common, Exact, v.x),
  };
}

}  // namespace

size_t ElementwiseOp::count(ElementwiseArgument::Kind kind) const {
  return static_cast<size_t>(std::ranges::count(arguments, kind, &ElementwiseArgument::kind));
}

std::span<const ElementwiseOp> elementwise_ops() {
  static const std::vector<ElementwiseOp> ops = make_ops();
  return ops;
}

const ElementwiseOp* find_elementwise(std::string_view overload) {
  const auto found = std::ranges::find(elementwise_ops(), overload, &ElementwiseOp::overload);
  return found == elementwise_ops().end() ? nullptr : &*found;
}

std::string_view first_word(std::string_view argument) {
  return argument == "approximate" ? "none" : "floor";
}
std::string_view second_word(std::string_view argument) {
  return argument == "approximate" ? "tanh" : "trunc";
}

}  // namespace dc::test
