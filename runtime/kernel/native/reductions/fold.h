// Folding of rows: many elements to one, in an order that is written down.
//
// A row is cut into chunks of kBlock elements. Element i of a chunk goes to lane i % kFoldLanes;
// the lanes are then joined in halves (lane i with lane i + 16, then i + 8, ...), and the chunks in
// order, sums in f64. So the order depends on the row alone, never on the vector width.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "runtime/kernel/native/lanes.h"
#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {

inline constexpr int64_t kFoldLanes = 32;

// A fold: its neutral element; prepare() changes an element before it is joined into others. Both
// take elements by reference, and vectors of them (the compiler's vector extension) unless the fold
// chooses.
template <typename T>
struct SumFold {
  using Total = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
  static T neutral() { return T{}; }
  static void prepare(auto&) {}
  static void join(auto& a, const auto& b) { a = a + b; }
  static Total join_totals(Total a, Total b) { return a + b; }
};
template <typename T>
struct ProductFold {
  using Total = T;
  static T neutral() { return T{1}; }
  static void prepare(auto&) {}
  static void join(auto& a, const auto& b) { a = a * b; }
  static Total join_totals(Total a, Total b) { return a * b; }
};
// NaN wins. The compiler makes good code of two choices in a loop over lanes, and element by
// element of one choice by two conditions, or of choices between its vectors.
template <typename T>
struct MaxFold {
  using Total = T;
  static constexpr bool kChooses = true;
  static T neutral() {
    return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                : std::numeric_limits<T>::lowest();
  }
  static void prepare(auto&) {}
  static void join(T& a, const T& b) {
    const T larger = a > b ? a : b;
    a = a != a ? a : larger;
  }
  static Total join_totals(Total a, Total b) {
    join(a, b);
    return a;
  }
};
template <typename T>
struct MinFold {
  using Total = T;
  static constexpr bool kChooses = true;
  static T neutral() {
    return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                : std::numeric_limits<T>::max();
  }
  static void prepare(auto&) {}
  static void join(T& a, const T& b) {
    const T smaller = a < b ? a : b;
    a = a != a ? a : smaller;
  }
  static Total join_totals(Total a, Total b) {
    join(a, b);
    return a;
  }
};
template <typename T>
struct AnyFold : MaxFold<T> {
  static T neutral() { return T{}; }
  static void prepare(T& x) { x = x != T{} ? T{1} : T{}; }
};
template <typename T>
struct AllFold : MinFold<T> {
  static T neutral() { return T{1}; }
  static void prepare(T& x) { x = x != T{} ? T{1} : T{}; }
};

template <typename Fold, typename T>
inline void join_element(T& into, T x) {
  Fold::prepare(x);
  Fold::join(into, x);
}

// lanes[0] joined with the others, `count` (a power of two) in all, in halves.
template <typename Fold, typename T>
inline T join_lanes(T* lanes, int64_t count) {
  for (int64_t half = count / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k < half; ++k) Fold::join(lanes[k], lanes[k + half]);
  }
  return lanes[0];
}

// The same for fewer elements than lanes: those without an element change nothing.
template <typename Fold, typename T>
inline T fold_few(const T* x, int64_t n) {
  T lanes[kFoldLanes];
  const auto count = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
  for (int64_t i = 0; i < count; ++i) {
    lanes[i] = Fold::neutral();
    if (i < n) join_element<Fold>(lanes[i], x[i]);
  }
  return join_lanes<Fold>(lanes, count);
}

template <typename Fold>
constexpr bool chooses() {
  if constexpr (requires { Fold::kChooses; }) return Fold::kChooses;
  return false;
}

// 64 bytes: one vector or several, as the CPU has them; the lanes of a fold are some of them.
template <typename T>
struct Wide {
  static constexpr int64_t kWidth = 64 / sizeof(T), kVectors = kFoldLanes / kWidth;
  using Vector [[gnu::vector_size(64)]] = T;
  using InMemory [[gnu::vector_size(64), gnu::aligned(sizeof(T)), gnu::may_alias]] = T;
};

// n <= kBlock elements.
template <typename Fold, typename T>
[[gnu::always_inline]] inline T fold_lanes(const T* x, int64_t n) {
  const int64_t full = n - n % kFoldLanes;
  T lanes[kFoldLanes];
  if constexpr (chooses<Fold>()) {
    for (T& lane : lanes) lane = Fold::neutral();
    for (int64_t i = 0; i < full; i += kFoldLanes) {
      for (int64_t k = 0; k < kFoldLanes; ++k) join_element<Fold>(lanes[k], x[i + k]);
    }
  } else {
    using W = Wide<T>;
    typename W::Vector sums[W::kVectors];
    for (typename W::Vector& sum : sums) sum = typename W::Vector{} + Fold::neutral();
    for (int64_t i = 0; i < full; i += kFoldLanes) {
#pragma GCC unroll 8
      for (int64_t k = 0; k < W::kVectors; ++k) {
        typename W::Vector element =
            *reinterpret_cast<const typename W::InMemory*>(x + i + k * W::kWidth);
        Fold::prepare(element);
        Fold::join(sums[k], element);
      }
    }
    std::memcpy(lanes, sums, sizeof(lanes));
  }
  for (int64_t i = full; i < n; ++i) join_element<Fold>(lanes[i - full], x[i]);
  return join_lanes<Fold>(lanes, kFoldLanes);
}
template <typename Fold, typename T>
DC_VECTOR_CLONES T fold_long_chunk(const T* x, int64_t n) {
  return fold_lanes<Fold>(x, n);
}
// The same for some chunks, `step` elements apart.
template <typename Fold, typename T>
DC_VECTOR_CLONES void fold_long_chunks(T* __restrict results, const T* x, int64_t step,
                                       int64_t chunks, int64_t n) {
  for (int64_t i = 0; i < chunks; ++i) results[i] = fold_lanes<Fold>(x + i * step, n);
}

// n <= kBlock elements, at least one.
template <typename Fold, typename T>
inline T fold_chunk(const T* x, int64_t n) {
  return n <= kFoldLanes / 2 ? fold_few<Fold>(x, n) : fold_long_chunk<Fold>(x, n);
}

// into[i] joined with x[i], then x[step + i], and so on for `rows` rows.
template <typename Fold, typename T>
DC_VECTOR_CLONES void fold_columns(T* __restrict into, const T* x, int64_t step, int64_t rows,
                                   int64_t n) {
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4, x += 4 * step) {
    for (int64_t i = 0; i < n; ++i) {
      T sum = into[i];
      join_element<Fold>(sum, x[i]);
      join_element<Fold>(sum, x[step + i]);
      join_element<Fold>(sum, x[2 * step + i]);
      join_element<Fold>(sum, x[3 * step + i]);
      into[i] = sum;
    }
  }
  for (; row < rows; ++row, x += step) {
    for (int64_t i = 0; i < n; ++i) join_element<Fold>(into[i], x[i]);
  }
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
