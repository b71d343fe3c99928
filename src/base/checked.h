// Arithmetic on int64 that notices overflow. For sizes and offsets read from files.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace dc::base {

constexpr std::optional<int64_t> checked_add(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

constexpr std::optional<int64_t> checked_mul(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

// The product of all factors; 1 for none. A zero factor does not hide an overflow before it.
constexpr std::optional<int64_t> checked_product(std::span<const int64_t> factors) {
  int64_t result = 1;
  for (int64_t factor : factors) {
    if (__builtin_mul_overflow(result, factor, &result)) return std::nullopt;
  }
  return result;
}

}  // namespace dc::base
