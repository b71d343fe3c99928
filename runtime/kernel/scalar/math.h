// exp, log, log1p, tanh, erf, sin and cos of floats: fixed sequences of operations without
// branches, so that loops over them become vector code and every vector width gives the same bits.
// fma() is the fused operation by name, which rounds once everywhere: an instruction where the CPU
// has it, slow on others.
//
// Bounds are of the largest error over all floats that the named range has, measured against libm
// in f64 by tests/runtime/kernel/native_math_test.cpp. In f64 they are libm's functions.
#pragma once

#include "runtime/kernel/scalar/language.h"

namespace dc::runtime::kernel::scalar::math {

using scalar::fma;

// 2^n for n from -126 to 127.
inline float power_of_two(int32_t n) {
  return bit_cast<float>(static_cast<uint32_t>(n + 127) << 23);
}

// Cephes' expf: x = n ln2 + r, polynomial in r: x is between -104 and 89.
struct ExpParts {
  float minus_one;   // exp(r) - 1
  int32_t exponent;  // n
};
inline ExpParts exp_parts(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves an integer in the low bits
  const float shifted = fma(x, 1.44269504088896341f, kRound);
  const float n = shifted - kRound;
  float r = fma(n, -0.693359375f, x);
  r = fma(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = fma(p, r, 1.3981999507e-3f);
  p = fma(p, r, 8.3334519073e-3f);
  p = fma(p, r, 4.1665795894e-2f);
  p = fma(p, r, 1.6666665459e-1f);
  p = fma(p, r, 5.0000001201e-1f);
  p = fma(p, r * r, r);
  return {p, static_cast<int32_t>(bit_cast<uint32_t>(shifted) - bit_cast<uint32_t>(kRound))};
}

// Scaled by 2^n in two steps, so that results below the normal range are right. At most 2 ulp.
inline float exp(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const ExpParts parts = exp_parts(x);
  const int32_t half = parts.exponent >> 1;
  return (parts.minus_one + 1.0f) * power_of_two(half) * power_of_two(parts.exponent - half);
}

// The same bits in less time where the result is a normal float: |x| is at most 87.
inline float exp_in_range(float x) {
  const ExpParts parts = exp_parts(x);
  return bit_cast<float>(bit_cast<uint32_t>(parts.minus_one + 1.0f) +
                         (static_cast<uint32_t>(parts.exponent) << 23));
}

// Cephes' logf. At most 2 ulp.
inline float log(float x) {
  const bool tiny = x < numeric_limits<float>::min();
  const float scaled = tiny ? x * 0x1p25f : x;
  const uint32_t bits = bit_cast<uint32_t>(scaled) - 0x3f3504f3u;  // below: sqrt(1/2)
  const float e = static_cast<float>(static_cast<int32_t>(bits) >> 23) - (tiny ? 25.0f : 0.0f);
  const float f = bit_cast<float>((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  const float z = f * f;
  float y = 7.0376836292e-2f;
  y = fma(y, f, -1.1514610310e-1f);
  y = fma(y, f, 1.1676998740e-1f);
  y = fma(y, f, -1.2420140846e-1f);
  y = fma(y, f, 1.4249322787e-1f);
  y = fma(y, f, -1.6668057665e-1f);
  y = fma(y, f, 2.0000714765e-1f);
  y = fma(y, f, -2.4999993993e-1f);
  y = fma(y, f, 3.3333331174e-1f);
  y = y * f * z;
  y = fma(e, -2.12194440e-4f, y);
  y = fma(z, -0.5f, y);
  float result = fma(e, 0.693359375f, f + y);
  constexpr float kInfinity = numeric_limits<float>::infinity();
  result = x < kInfinity ? result : x;  // infinity and NaN
  result = x == 0.0f ? -kInfinity : result;
  return x < 0.0f ? numeric_limits<float>::quiet_NaN() : result;
}

// log(1 + x). What 1 + x rounds away comes back as the ratio of x to what is left of it (W. Kahan).
// At most 4 ulp.
inline float log1p(float x) {
  const float sum = 1.0f + x, kept = sum - 1.0f;
  const float lost = kept == x ? 1.0f : x / kept;  // equal where both are infinite, too
  return kept == 0.0f ? x : log(sum) * lost;
}

// e / (e + 2) with e = exp(2 |x|) - 1, which keeps its digits near 0. At most 3 ulp.
inline float tanh(float x) {
  const float magnitude = fabs(x);
  const ExpParts parts = exp_parts(magnitude > 20.0f ? 40.0f : 2.0f * magnitude);
  const float scale = power_of_two(parts.exponent);
  const float e = fma(scale, parts.minus_one, scale - 1.0f);
  return copysign(quotient_in_range(e, e + 2.0f), x);
}

// Two polynomials (N. Juffa, public domain). At most 3 ulp.
inline float erf(float x) {
  const float t = fabs(x), s = x * x;
  float far = fma(t, -1.72853470e-5f, 3.83197126e-4f);
  far = fma(far, s, fma(t, -3.88396438e-3f, 2.42546219e-2f));
  far = fma(far, t, -1.06777877e-1f);
  far = fma(far, t, -6.34846687e-1f);
  far = fma(far, t, -1.28717512e-1f);
  far = fma(far, t, -t);
  far = 1.0f - exp_in_range(far);  // of t up to 4
  far = t > 4.0f ? 1.0f : far;
  float near = -5.96761703e-4f;
  near = fma(near, s, 4.99119423e-3f);
  near = fma(near, s, -2.67681349e-2f);
  near = fma(near, s, 1.12819925e-1f);
  near = fma(near, s, -3.76125336e-1f);
  near = fma(near, s, 1.28379166e-1f);
  near = fma(near, x, x);
  return t > 0.927734375f ? copysign(far, x) : near;
}

// x = k pi/2 + r in f64: r, and k in the low bits.
struct QuarterTurns {
  double rest;
  uint64_t quarters;
};
inline constexpr double kRoundToInteger = 6755399441055744.0;  // 1.5 * 2^52

inline bool has_few_turns(float x) { return fabs(x) <= 0x1p20f; }
inline QuarterTurns few_turns(float x) {
  const double value = x;
  const double shifted = fma(value, 0.63661977236758134308, kRoundToInteger);
  const double k = shifted - kRoundToInteger;
  return {fma(k, -6.07710050650619224932e-11, fma(k, -1.57079632673412561417, value)),
          bit_cast<uint64_t>(shifted)};
}
// For all floats. x is an integer times 2^(exponent field - 150), so that of the bits of 2/pi the
// first ones give whole turns (M. Payne and R. Hanek, 1983). The next 28 times x are exact in f64.
inline QuarterTurns many_turns(float x) {
  const uint32_t exponent = bit_cast<uint32_t>(x) >> 23 & 0xffu;
  const uint32_t skipped = exponent < 152u ? 0u : exponent - 152u, words = skipped >> 5;
  const uint64_t bits = skipped & 31u, one = bit_cast<uint64_t>(1.0);
  const uint64_t first = words == 0u   ? 0xa2f9836e4e441529u
                         : words == 1u ? 0x4e441529fc2757d1u
                         : words == 2u ? 0xfc2757d1f534ddc0u
                                       : 0xf534ddc0db629599u;
  const uint64_t second = words == 0u   ? 0xfc2757d1f534ddc0u
                          : words == 1u ? 0xf534ddc0db629599u
                          : words == 2u ? 0xdb6295993c439041u
                                        : 0x3c439041fe5163abu;
  const uint64_t upper = first << bits | second >> 1 >> (63 - bits);
  const uint64_t lower = upper << 28 | second << bits >> 36;
  const double high = bit_cast<double>(one | upper >> 36 << 24) - 1.0;
  const double low = (bit_cast<double>(one | lower >> 12) - 1.0) * 0x1p-28;
  const double value =
      static_cast<double>(x) * bit_cast<double>(one - (static_cast<uint64_t>(skipped) << 52));
  const double product = value * high;
  const double shifted = fma(value, low, product) + kRoundToInteger;
  const double k = shifted - kRoundToInteger;
  return {fma(value, low, product - k) * 1.57079632679489661923, bit_cast<uint64_t>(shifted)};
}
// Taylor polynomials in r. At most 1 ulp.
inline float sine(const QuarterTurns& turns, uint64_t more_quarters) {
  const double r = turns.rest, z = r * r;
  double sine = 1.0 / 362880;
  sine = fma(sine, z, -1.0 / 5040);
  sine = fma(sine, z, 1.0 / 120);
  sine = fma(sine, z, -1.0 / 6);
  sine = fma(sine * z, r, r);
  double cosine = -1.0 / 3628800;
  cosine = fma(cosine, z, 1.0 / 40320);
  cosine = fma(cosine, z, -1.0 / 720);
  cosine = fma(cosine, z, 1.0 / 24);
  cosine = fma(cosine, z, -0.5);
  cosine = fma(cosine, z, 1.0);
  const uint64_t place = turns.quarters + more_quarters;
  const double chosen = (place & 1u) != 0 ? cosine : sine;
  return static_cast<float>((place & 2u) != 0 ? -chosen : chosen);
}
inline float sine(float x, uint64_t more_quarters) {
  return sine(has_few_turns(x) ? few_turns(x) : many_turns(x), more_quarters);
}
inline float sin(float x) { return sine(x, 0); }
inline float cos(float x) { return sine(x, 1); }

// 0 where exp(-x) is infinite, as in PyTorch: what is multiplied by x must vanish there.
inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }
// The same bits in less time of most x: not of those whose exponential or quotient needs a check.
inline bool is_moderate(float x) { return fabs(x) <= 80.0f; }
inline float sigmoid_of_moderate(float x) {
  return quotient_in_range(1.0f, 1.0f + exp_in_range(-x));
}

inline double exp(double x) { return scalar::exp(x); }
inline double log(double x) { return scalar::log(x); }
inline double log1p(double x) { return scalar::log1p(x); }
inline double tanh(double x) { return scalar::tanh(x); }
inline double erf(double x) { return scalar::erf(x); }
inline double sin(double x) { return scalar::sin(x); }
inline double cos(double x) { return scalar::cos(x); }
inline double sigmoid(double x) { return 1.0 / (1.0 + scalar::exp(-x)); }

}  // namespace dc::runtime::kernel::scalar::math
