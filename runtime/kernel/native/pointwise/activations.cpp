// Activation functions and their gradients.
#include <type_traits>

#include "runtime/kernel/native/math.h"
#include "runtime/kernel/native/pair.h"
#include "runtime/kernel/native/pointwise/pointwise.h"

namespace dc::runtime::kernel::native {
namespace {

using One = std::array<std::string_view, 1>;
using Two = std::array<std::string_view, 2>;
using Three = std::array<std::string_view, 3>;

template <typename T>
struct Relu {
  static constexpr One kNames{"self"};
  explicit Relu(Call&) {}
  T operator()(T x) const { return x < T{} ? T{} : x; }
};
template <typename T>
struct ThresholdBackward {
  static constexpr Two kNames{"grad_output", "self"};
  explicit ThresholdBackward(Call& call) : threshold(call.scalar<T>("threshold")) {}
  T operator()(T g, T x) const { return x <= threshold ? T{} : g; }
  T threshold;
};
template <typename T>
struct SigmoidBackward {
  static constexpr Two kNames{"grad_output", "output"};
  explicit SigmoidBackward(Call&) {}
  T operator()(T g, T y) const { return g * (T{1} - y) * y; }
};
template <typename T>
struct TanhBackward {
  static constexpr Two kNames{"grad_output", "output"};
  explicit TanhBackward(Call&) {}
  T operator()(T g, T y) const { return g * (T{1} - y * y); }
};
template <typename T>
struct Silu {
  static constexpr One kNames{"self"};
  explicit Silu(Call&) {}
  T operator()(T x) const { return x / (T{1} + math::exp(-x)); }
};
template <typename T>
struct SiluBackward {
  static constexpr Two kNames{"grad_output", "self"};
  explicit SiluBackward(Call&) {}
  T operator()(T g, T x) const {
    const T s = math::sigmoid(x);
    return g * s * (T{1} + x * (T{1} - s));
  }
};

template <typename T>
struct Gelu {
  static constexpr One kNames{"self"};
  explicit Gelu(Call&) {}
  T operator()(T x) const { return x * T(0.5) * (T{1} + math::erf(x * T(0.70710678118654752440))); }
};
template <typename T>
struct GeluBackward {
  static constexpr Two kNames{"grad_output", "self"};
  explicit GeluBackward(Call&) {}
  T operator()(T g, T x) const {
    const T cdf = T(0.5) * (T{1} + math::erf(x * T(0.70710678118654752440)));
    const T pdf = math::exp(x * x * T(-0.5)) * T(0.39894228040143267794);
    return g * (cdf + x * pdf);
  }
};
// sqrt(2 / pi) and the factor of the cubic term.
inline constexpr double kTanhSlope = 0.79788456080286535588, kTanhCubic = 0.044715;
template <typename T>
struct GeluByTanh {
  static constexpr One kNames{"self"};
  explicit GeluByTanh(Call&) {}
  T operator()(T x) const {
    const T inner = T(kTanhSlope) * (x + T(kTanhCubic) * x * x * x);
    return T(0.5) * x * (T{1} + math::tanh(inner));
  }
};
template <typename T>
struct GeluByTanhBackward {
  static constexpr Two kNames{"grad_output", "self"};
  explicit GeluByTanhBackward(Call&) {}
  T operator()(T g, T x) const {
    const T square = x * x;
    const T t = math::tanh(T(kTanhSlope) * (x + T(kTanhCubic) * square * x));
    const T slope = T(kTanhSlope) * (T{1} + T(3 * kTanhCubic) * square);
    return g * (T(0.5) * (T{1} + t) + T(0.5) * x * (T{1} - t * t) * slope);
  }
};

Made gelu(Call& call) {
  return call.text("approximate", "none") == "tanh" ? pointwise<GeluByTanh, kReal>(call)
                                                    : pointwise<Gelu, kReal>(call);
}
Made gelu_backward(Call& call) {
  return call.text("approximate", "none") == "tanh" ? pointwise<GeluByTanhBackward, kReal>(call)
                                                    : pointwise<GeluBackward, kReal>(call);
}

template <typename T>
struct LeakyRelu {
  static constexpr One kNames{"self"};
  explicit LeakyRelu(Call& call) : slope(call.scalar<T>("negative_slope", T(0.01))) {}
  T operator()(T x) const { return x > T{} ? x : x * slope; }
  T slope;
};
template <typename T>
struct LeakyReluBackward {
  static constexpr Two kNames{"grad_output", "self"};
  explicit LeakyReluBackward(Call& call) : slope(call.scalar<T>("negative_slope", T(0.01))) {}
  T operator()(T g, T x) const { return x > T{} ? g : g * slope; }
  T slope;
};
template <typename T>
struct Hardtanh {
  static constexpr One kNames{"self"};
  explicit Hardtanh(Call& call)
      : low(call.scalar<T>("min_val", T{-1})), high(call.scalar<T>("max_val", T{1})) {}
  T operator()(T x) const {
    x = x < low ? low : x;
    return x > high ? high : x;
  }
  T low, high;
};
template <typename T>
struct HardtanhBackward {
  static constexpr Two kNames{"grad_output", "self"};
  explicit HardtanhBackward(Call& call)
      : low(call.scalar<T>("min_val")), high(call.scalar<T>("max_val")) {}
  T operator()(T g, T x) const { return x <= low || x >= high ? T{} : g; }
  T low, high;
};

// log(1 + exp(x)), without losing what 1 + exp(x) rounds away; what is large stays.
template <typename T>
struct Softplus {
  static constexpr One kNames{"self"};
  explicit Softplus(Call& call)
      : beta(call.scalar<T>("beta", T{1})), threshold(call.scalar<T>("threshold", T{20})) {}
  T operator()(T x) const {
    const T scaled = x * beta, e = math::exp(scaled), sum = T{1} + e;
    const T rounded = sum - T{1};
    const T lost = rounded == e ? T{1} : e / rounded;  // equal where both are infinite, too
    const T log = rounded == T{} ? e : math::log(sum) * lost;
    return scaled > threshold ? x : log / beta;
  }
  T beta, threshold;
};
template <typename T>
struct SoftplusBackward {
  static constexpr Two kNames{"grad_output", "self"};
  explicit SoftplusBackward(Call& call)
      : beta(call.scalar<T>("beta")), threshold(call.scalar<T>("threshold")) {}
  T operator()(T g, T x) const {
    const T scaled = x * beta, e = math::exp(scaled);
    return scaled > threshold ? g : g * e / (e + T{1});
  }
  T beta, threshold;
};

// log(sigmoid(x)); next to it exp(-|x|), of which the gradient is made.
template <typename T>
struct ExpOfMinusAbs {
  static constexpr One kNames{"self"};
  explicit ExpOfMinusAbs(Call&) {}
  T operator()(T x) const { return math::exp(-std::fabs(x)); }
};
template <typename T>
struct LogSigmoid {
  static constexpr One kNames{"self"};
  explicit LogSigmoid(Call&) {}
  T operator()(T x) const {
    const T below = x > T{} ? T{} : x;  // NaN stays
    return below - math::log1p(math::exp(-std::fabs(x)));
  }
};
template <typename T>
struct LogSigmoidBackward {
  static constexpr Three kNames{"grad_output", "self", "buffer"};
  explicit LogSigmoidBackward(Call&) {}
  T operator()(T g, T x, T e) const {
    const T sign = x < T{} ? T{1} : T{-1}, most = x < T{} ? T{1} : T{};
    return (most - sign * (e / (T{1} + e))) * g;
  }
};
// On a CPU the second result has the shape of the first; elsewhere it is empty.
Made log_sigmoid(Call& call) {
  if (!call.has_result(1) || call.output(1).numel() == 0) return pointwise<LogSigmoid, kReal>(call);
  return pair(call, pointwise<LogSigmoid, kReal>(call), pointwise<ExpOfMinusAbs, kReal, 1>(call));
}

constexpr Row kRows[] = {
    {"aten.gelu.default", gelu},
    {"aten.gelu_backward.default", gelu_backward},
    {"aten.hardtanh.default", pointwise<Hardtanh, kReal>},
    {"aten.hardtanh_backward.default", pointwise<HardtanhBackward, kReal>},
    {"aten.leaky_relu.default", pointwise<LeakyRelu, kReal>},
    {"aten.leaky_relu_backward.default", pointwise<LeakyReluBackward, kReal>},
    {"aten.log_sigmoid_backward.default", pointwise<LogSigmoidBackward, kReal>},
    {"aten.log_sigmoid_forward.default", log_sigmoid},
    {"aten.relu.default", pointwise<Relu>},
    {"aten.sigmoid_backward.default", pointwise<SigmoidBackward, kReal>},
    {"aten.silu.default", pointwise<Silu, kReal>},
    {"aten.silu_backward.default", pointwise<SiluBackward, kReal>},
    {"aten.softplus.default", pointwise<Softplus, kReal>},
    {"aten.softplus_backward.default", pointwise<SoftplusBackward, kReal>},
    {"aten.tanh_backward.default", pointwise<TanhBackward, kReal>},
    {"aten.threshold_backward.default", pointwise<ThresholdBackward>},
};

}  // namespace

std::span<const Row> activation_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
