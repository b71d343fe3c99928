// Strong types for quantities and ids: no bare int64_t where a unit or an id space is meant.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace dc::base {

// An additive quantity (bytes, nanoseconds). Arithmetic within one unit only; `.v` is the raw
// number.
template <typename Tag>
struct Quantity {
  int64_t v = 0;
  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator+(Quantity o) const { return {v + o.v}; }
  constexpr Quantity operator-(Quantity o) const { return {v - o.v}; }
  constexpr Quantity operator*(int64_t k) const { return {v * k}; }
  constexpr Quantity& operator+=(Quantity o) {
    v += o.v;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity o) {
    v -= o.v;
    return *this;
  }
};
using Bytes = Quantity<struct BytesTag>;
using Nanos = Quantity<struct NanosTag>;

// A dense id: an index into one table.
template <typename Tag>
struct Id {
  int32_t v = -1;
  constexpr auto operator<=>(const Id&) const = default;
  constexpr bool valid() const { return v >= 0; }
  constexpr size_t index() const { return static_cast<size_t>(v); }
};
using Rank = Id<struct RankTag>;

inline constexpr int64_t kAlignment = 64;  // bytes; every planned slice starts on this boundary

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace dc::base

template <typename Tag>
struct std::hash<dc::base::Id<Tag>> {
  size_t operator()(dc::base::Id<Tag> id) const noexcept { return static_cast<size_t>(id.v); }
};
