// Folding of rows: many elements to one, in an order that is written down.
//
// A row is cut into chunks of kBlock elements. Element i of a chunk goes to lane i % kFoldLanes;
// the lanes are then joined in halves (lane i with lane i + 16, then i + 8, ...), and the chunks in
// order, sums in f64. So the order depends on the row alone, never on the vector width.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "runtime/kernel/native/lanes.h"
#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {

inline constexpr int64_t kFoldLanes = 32;

// A fold: its neutral element, what is done to an element, how two are joined.
template <typename T>
struct SumFold {
  using Total = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
  static T neutral() { return T{}; }
  static T of(T x) { return x; }
  static T join(T a, T b) { return a + b; }
  static Total join_totals(Total a, Total b) { return a + b; }
};
template <typename T>
struct ProductFold {
  using Total = T;
  static T neutral() { return T{1}; }
  static T of(T x) { return x; }
  static T join(T a, T b) { return a * b; }
  static Total join_totals(Total a, Total b) { return a * b; }
};
// NaN wins.
template <typename T>
struct MaxFold {
  using Total = T;
  static T neutral() {
    return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                : std::numeric_limits<T>::lowest();
  }
  static T of(T x) { return x; }
  static T join(T a, T b) { return a > b || a != a ? a : b; }
  static Total join_totals(Total a, Total b) { return join(a, b); }
};
template <typename T>
struct MinFold {
  using Total = T;
  static T neutral() {
    return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                : std::numeric_limits<T>::max();
  }
  static T of(T x) { return x; }
  static T join(T a, T b) { return a < b || a != a ? a : b; }
  static Total join_totals(Total a, Total b) { return join(a, b); }
};
template <typename T>
struct AnyFold : MaxFold<T> {
  static T neutral() { return T{}; }
  static T of(T x) { return x != T{} ? T{1} : T{}; }
};
template <typename T>
struct AllFold : MinFold<T> {
  static T neutral() { return T{1}; }
  static T of(T x) { return x != T{} ? T{1} : T{}; }
};

// n <= kBlock elements.
template <typename Fold, typename T>
DC_VECTOR_CLONES T fold_chunk(const T* x, int64_t n) {
  T lanes[kFoldLanes];
  for (int64_t k = 0; k < kFoldLanes; ++k) lanes[k] = Fold::neutral();
  const int64_t full = n - n % kFoldLanes;
  for (int64_t i = 0; i < full; i += kFoldLanes) {
#pragma GCC unroll 32
    for (int64_t k = 0; k < kFoldLanes; ++k) lanes[k] = Fold::join(lanes[k], Fold::of(x[i + k]));
  }
  for (int64_t i = full; i < n; ++i) lanes[i - full] = Fold::join(lanes[i - full], Fold::of(x[i]));
  for (int64_t half = kFoldLanes / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k < half; ++k) lanes[k] = Fold::join(lanes[k], lanes[k + half]);
  }
  return lanes[0];
}

// into[i] joined with x[i].
template <typename Fold, typename T>
DC_VECTOR_CLONES void fold_columns(T* __restrict into, const T* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) into[i] = Fold::join(into[i], Fold::of(x[i]));
}

// A row of any length, read as lanes.
template <typename Fold, typename T>
typename Fold::Total fold_row(const LaneReader& reader, const std::byte* row, int64_t n,
                              typename Fold::Total total) {
  alignas(64) T buffer[kBlock];
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t count = std::min(kBlock, n - first);
    const auto* x = static_cast<const T*>(reader.read(buffer, row, first, count));
    total = Fold::join_totals(total, fold_chunk<Fold, T>(x, count));
  }
  return total;
}

}  // namespace dc::runtime::kernel::native
