// What the headers of this folder need of the standard library: from it where there is one, written
// out for NVRTC, which compiles without any header of the host.
#pragma once

#ifdef __CUDACC_RTC__

namespace dc::runtime::kernel::scalar {

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned;
using uint64_t = unsigned long;
static_assert(sizeof(int64_t) == 8 && sizeof(int32_t) == 4);

template <typename To, typename From>
inline To bit_cast(const From& from) {
  return __builtin_bit_cast(To, from);
}

// Of integers; the functions of floats and doubles that are used are below.
template <typename T>
struct numeric_limits {
  static constexpr bool kSigned = T(-1) < T(0);
  static constexpr T max() {
    return static_cast<T>(static_cast<uint64_t>(-1) >> (64 - 8 * sizeof(T) + (kSigned ? 1 : 0)));
  }
  static constexpr T min() { return kSigned ? static_cast<T>(-max() - 1) : T(0); }
};
template <>
struct numeric_limits<float> {
  static constexpr float min() { return 0x1p-126f; }
  static constexpr float infinity() { return __builtin_bit_cast(float, 0x7f800000u); }
  static constexpr float quiet_NaN() { return __builtin_bit_cast(float, 0x7fc00000u); }
};

// Each rounds once, and gives the bits that the host's function gives. quotient_in_range(x, y): x /
// y in half the instructions, which check nothing, of a finite x and a y from 1 to 2^120 that is 2
// or makes a quotient of at least 2^-120, or 0; NaN of NaN.
inline float quotient_in_range(float x, float y) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y));
  r = __fmaf_rn(-__fmaf_rn(y, r, -1.0f), r, r);
  // What is left is negated, so that zeros keep their sign.
  float quotient = x * r;
  quotient = __fmaf_rn(-__fmaf_rn(y, quotient, -x), r, quotient);
  return __fmaf_rn(-__fmaf_rn(y, quotient, -x), r, quotient);
}
inline float sqrt(float x) { return __fsqrt_rn(x); }
inline double sqrt(double x) { return __dsqrt_rn(x); }
inline float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
inline double fma(double a, double b, double c) { return __fma_rn(a, b, c); }
inline float fabs(float x) { return ::fabsf(x); }
inline double fabs(double x) { return ::fabs(x); }
inline float copysign(float x, float sign) { return ::copysignf(x, sign); }
inline double copysign(double x, double sign) { return ::copysign(x, sign); }
inline float floor(float x) { return ::floorf(x); }
inline double floor(double x) { return ::floor(x); }
inline float ceil(float x) { return ::ceilf(x); }
inline double ceil(double x) { return ::ceil(x); }
inline float trunc(float x) { return ::truncf(x); }
inline double trunc(double x) { return ::trunc(x); }
inline float nearbyint(float x) { return ::nearbyintf(x); }
inline double nearbyint(double x) { return ::nearbyint(x); }
inline float fmod(float x, float y) { return ::fmodf(x, y); }
inline double fmod(double x, double y) { return ::fmod(x, y); }

// These are the library's: in f64 bits may differ from the host's.
inline double exp(double x) { return ::exp(x); }
inline double log(double x) { return ::log(x); }
inline double log1p(double x) { return ::log1p(x); }
inline double tanh(double x) { return ::tanh(x); }
inline double erf(double x) { return ::erf(x); }
inline double sin(double x) { return ::sin(x); }
inline double cos(double x) { return ::cos(x); }
inline double pow(double x, double y) { return ::pow(x, y); }

}  // namespace dc::runtime::kernel::scalar

#else

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace dc::runtime::kernel::scalar {

using std::bit_cast, std::numeric_limits;
using std::ceil, std::copysign, std::fabs, std::floor, std::fmod, std::nearbyint, std::sqrt,
    std::trunc;
using std::cos, std::erf, std::exp, std::log, std::log1p, std::pow, std::sin, std::tanh;
using std::int16_t, std::int32_t, std::int64_t, std::int8_t;
using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;
inline float quotient_in_range(float x, float y) { return x / y; }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }

}  // namespace dc::runtime::kernel::scalar

#endif

namespace dc::runtime::kernel::scalar {

template <typename A, typename B>
inline constexpr bool kSame = false;
template <typename A>
inline constexpr bool kSame<A, A> = true;

template <typename T>
inline constexpr bool kFloating = kSame<T, float> || kSame<T, double>;

}  // namespace dc::runtime::kernel::scalar
