// Activation functions and their gradients.
//
// of_moderate() of operands of which is_moderate() gives the bits of operator() in less time, on
// GPUs, where a division and an exponential of any float take twice the instructions.
#pragma once

#include "runtime/kernel/scalar/arithmetic.h"

namespace dc::runtime::kernel::scalar {

// Whether the operator has of_moderate() for these lanes.
template <typename Operator, typename... Lanes>
inline constexpr bool kKnowsModerate = false;
template <typename Operator, typename... Lanes>
requires(kSame<Lanes, float>&&...) && requires(const Operator& op, Lanes... x) {
  op.is_moderate(x...);
}
inline constexpr bool kKnowsModerate<Operator, Lanes...> = true;

template <typename T>
struct Relu {
  T operator()(T x) const { return x < T{} ? T{} : x; }
};
template <typename T>
struct ThresholdBackward {
  T threshold;
  T operator()(T g, T x) const { return x <= threshold ? T{} : g; }
};
template <typename T>
struct SigmoidBackward {
  T operator()(T g, T y) const { return g * (T{1} - y) * y; }
};
template <typename T>
struct TanhBackward {
  T operator()(T g, T y) const { return g * (T{1} - y * y); }
};
template <typename T>
struct Silu {
  T operator()(T x) const { return x / (T{1} + math::exp(-x)); }
  bool is_moderate(float x) const { return math::is_moderate(x); }
  float of_moderate(float x) const { return quotient_in_range(x, 1.0f + math::exp_in_range(-x)); }
};
template <typename T>
struct SiluBackward {
  T operator()(T g, T x) const { return product(g, x, math::sigmoid(x)); }
  bool is_moderate(float, float x) const { return math::is_moderate(x); }
  float of_moderate(float g, float x) const { return product(g, x, math::sigmoid_of_moderate(x)); }

 private:
  static T product(T g, T x, T s) { return g * s * (T{1} + x * (T{1} - s)); }
};

template <typename T>
struct Gelu {
  T operator()(T x) const { return x * T(0.5) * (T{1} + math::erf(x * T(0.70710678118654752440))); }
};
template <typename T>
struct GeluBackward {
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
  T operator()(T x) const {
    const T inner = T(kTanhSlope) * (x + T(kTanhCubic) * x * x * x);
    return T(0.5) * x * (T{1} + math::tanh(inner));
  }
};
template <typename T>
struct GeluByTanhBackward {
  T operator()(T g, T x) const {
    const T square = x * x;
    const T t = math::tanh(T(kTanhSlope) * (x + T(kTanhCubic) * square * x));
    const T slope = T(kTanhSlope) * (T{1} + T(3 * kTanhCubic) * square);
    return g * (T(0.5) * (T{1} + t) + T(0.5) * x * (T{1} - t * t) * slope);
  }
};

template <typename T>
struct LeakyRelu {
  T slope;
  T operator()(T x) const { return x > T{} ? x : x * slope; }
};
template <typename T>
struct LeakyReluBackward {
  T slope;
  T operator()(T g, T x) const { return x > T{} ? g : g * slope; }
};
template <typename T>
struct Hardtanh {
  T low, high;
  T operator()(T x) const { return clamped(x, low, high); }
};
template <typename T>
struct HardtanhBackward {
  T low, high;
  T operator()(T g, T x) const { return x <= low || x >= high ? T{} : g; }
};

// log(1 + exp(x)), without losing what 1 + exp(x) rounds away; what is large stays.
template <typename T>
struct Softplus {
  T beta, threshold;
  T operator()(T x) const {
    const T scaled = x * beta, e = math::exp(scaled), sum = T{1} + e;
    const T rounded = sum - T{1};
    const T lost = rounded == e ? T{1} : e / rounded;  // equal where both are infinite, too
    const T log = rounded == T{} ? e : math::log(sum) * lost;
    return scaled > threshold ? x : log / beta;
  }
};
template <typename T>
struct SoftplusBackward {
  T beta, threshold;
  T operator()(T g, T x) const {
    const T scaled = x * beta, e = math::exp(scaled);
    return scaled > threshold ? g : g * e / (e + T{1});
  }
};

// log(sigmoid(x)); next to it exp(-|x|), of which the gradient is made.
template <typename T>
struct ExpOfMinusAbs {
  T operator()(T x) const { return math::exp(-fabs(x)); }
};
template <typename T>
struct LogSigmoid {
  T operator()(T x) const {
    const T below = x > T{} ? T{} : x;  // NaN stays
    return below - math::log1p(math::exp(-fabs(x)));
  }
};
template <typename T>
struct LogSigmoidBackward {
  T operator()(T g, T x, T e) const {
    const T sign = x < T{} ? T{1} : T{-1}, most = x < T{} ? T{1} : T{};
    return (most - sign * (e / (T{1} + e))) * g;
  }
};
// The same where exp(-|x|) was not kept.
template <typename T>
struct LogSigmoidBackwardOfSelf {
  T operator()(T g, T x) const { return LogSigmoidBackward<T>{}(g, x, math::exp(-fabs(x))); }
};

}  // namespace dc::runtime::kernel::scalar
