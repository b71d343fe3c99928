// Element types in memory and their conversion: widening exact, narrowing to nearest even.
//
// Everything here is free of branches, so that loops over it become vector code.
#pragma once

#include "runtime/kernel/scalar/language.h"

namespace dc::runtime::kernel::scalar {

struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
struct Bool {
  uint8_t value;
};

inline float widen(BF16 x) { return bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

// The exponent is moved into place by a multiplication with 2^112, which also makes subnormals
// right.
inline float widen(F16 x) {
  const uint32_t magnitude = static_cast<uint32_t>(x.bits & 0x7fffu) << 13;
  const float scaled = bit_cast<float>(magnitude) * 0x1p112f;
  const uint32_t special = magnitude >= (0x1fu << 23) ? 0x7f800000u : 0u;  // infinity and NaN
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  return bit_cast<float>(bit_cast<uint32_t>(scaled) | special | sign);
}

#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 900
// NaN is 0x7fff from the first instruction, 0x7fc0 from the second, which of signed numbers leaves
// all others.
inline BF16 narrow_bf16(float x) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(0.0f), "f"(x));
  asm("min.s16x2 %0, %0, %1;" : "+r"(bits) : "r"(0x7fc0u));
  return BF16{static_cast<uint16_t>(bits)};
}
#else
inline BF16 narrow_bf16(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = x != x;
  return BF16{static_cast<uint16_t>(is_nan ? 0x7fc0u : rounded)};
}
#endif

inline F16 narrow_f16(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t sign = (bits >> 16) & 0x8000u;
  // Normal results: rebias the exponent and round to nearest even at bit 13. Overflow carries into
  // the exponent.
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal results: adding 0.5 makes the addition round at the right bit.
  const float shifted = bit_cast<float>(magnitude) + 0.5f;
  const uint32_t subnormal = bit_cast<uint32_t>(shifted) - 0x3f000000u;
  uint32_t result = magnitude < (113u << 23) ? subnormal : normal;
  result = magnitude >= (143u << 23) ? 0x7c00u : result;  // 65536 and more
  result = magnitude > 0x7f800000u ? 0x7e00u : result;    // NaN
  return F16{static_cast<uint16_t>(result | sign)};
}

// What an element is computed with: float for the 16-bit types, itself otherwise.
inline float load(BF16 x) { return widen(x); }
inline float load(F16 x) { return widen(x); }
inline int32_t load(Bool x) { return x.value != 0; }
template <typename T>
inline T load(T x) {
  return x;
}

// A float that does not fit an integer type gives the nearest bound, NaN gives 0.
template <typename To, typename From>
inline To to_integer(From x) {
  if constexpr (kFloating<From>) {
    const double value = static_cast<double>(x);
    if (value != value) return 0;
    if (value <= static_cast<double>(numeric_limits<To>::min())) return numeric_limits<To>::min();
    if (value >= static_cast<double>(numeric_limits<To>::max())) return numeric_limits<To>::max();
  }
  return static_cast<To>(x);
}

// To an element type from a loaded value. The 16-bit types are reached through float, as PyTorch
// does.
template <typename To, typename From>
inline To store(From x) {
  if constexpr (kSame<To, BF16>) {
    return narrow_bf16(static_cast<float>(x));
  } else if constexpr (kSame<To, F16>) {
    return narrow_f16(static_cast<float>(x));
  } else if constexpr (kSame<To, Bool>) {
    return Bool{static_cast<uint8_t>(x != From{})};
  } else if constexpr (kFloating<To>) {
    return static_cast<To>(x);
  } else {
    return to_integer<To>(x);
  }
}

}  // namespace dc::runtime::kernel::scalar
