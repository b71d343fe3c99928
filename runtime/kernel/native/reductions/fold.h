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
#include <utility>

#include "runtime/kernel/native/lanes.h"
#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {

inline constexpr int64_t kFoldLanes = 32;

// Of an integer, or of a vector of them, the unsigned type of as many bits; void of others.
template <typename T>
struct UnsignedOf {
  using Type = void;
};
template <typename T>
requires std::is_integral_v<T>
struct UnsignedOf<T> {
  using Type = std::make_unsigned_t<T>;
};
template <typename T>
requires std::is_integral_v<std::remove_cvref_t<decltype(std::declval<T>()[0])>>
struct UnsignedOf<T> {
  using Element = std::make_unsigned_t<std::remove_cvref_t<decltype(std::declval<T>()[0])>>;
  using Type [[gnu::vector_size(sizeof(T))]] = Element;
};

// a += b and a *= b of elements or of vectors of them. Integers wrap, whatever a file that includes
// this is compiled with: the linker keeps one file's copy of a fold.
template <typename T>
void add_wrapping(T& a, const T& b) {
  using Unsigned = typename UnsignedOf<T>::Type;
  if constexpr (std::is_void_v<Unsigned>) {
    a = a + b;
  } else {
    const Unsigned sum = __builtin_bit_cast(Unsigned, a) + __builtin_bit_cast(Unsigned, b);
    a = __builtin_bit_cast(T, sum);
  }
}
template <typename T>
void multiply_wrapping(T& a, const T& b) {
  using Unsigned = typename UnsignedOf<T>::Type;
  if constexpr (std::is_void_v<Unsigned>) {
    a = a * b;
  } else {
    const Unsigned product = __builtin_bit_cast(Unsigned, a) * __builtin_bit_cast(Unsigned, b);
    a = __builtin_bit_cast(T, product);
  }
}

// A fold: its neutral element; prepare() changes an element before it is joined into others. Both
// take elements by reference, and vectors of them (the compiler's vector extension) unless the fold
// chooses.
template <typename T>
struct SumFold {
  using Total = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
  static T neutral() { return T{}; }
  static void prepare(auto&) {}
  static void join(auto& a, const auto& b) { add_wrapping(a, b); }
  static Total join_totals(Total a, Total b) {
    add_wrapping(a, b);
    return a;
  }
};
template <typename T>
struct ProductFold {
  using Total = T;
  static T neutral() { return T{1}; }
  static void prepare(auto&) {}
  static void join(auto& a, const auto& b) { multiply_wrapping(a, b); }
  static Total join_totals(Total a, Total b) {
    multiply_wrapping(a, b);
    return a;
  }
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

// lanes[0] joined with the others, kCount (a power of two) in all, in halves. Each half is a loop
// with a length known at compile time.
template <int64_t kCount, typename Fold, typename T>
[[gnu::always_inline]] inline T join_lanes(T* lanes) {
  if constexpr (kCount > 1) {
    constexpr int64_t kHalf = kCount / 2;
    for (int64_t k = 0; k < kHalf; ++k) Fold::join(lanes[k], lanes[k + kHalf]);
    return join_lanes<kHalf, Fold>(lanes);
  } else {
    return lanes[0];
  }
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
  for (int64_t half = count / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k < half; ++k) Fold::join(lanes[k], lanes[k + half]);
  }
  return lanes[0];
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

// So many elements, next to each other in memory, as lanes.
template <typename T, typename E>
[[gnu::always_inline]] inline void read_vector(typename Wide<T>::Vector& lanes, const E* from) {
  if constexpr (std::is_same_v<E, BF16>) {
    using Half [[gnu::vector_size(32), gnu::aligned(2), gnu::may_alias]] = uint16_t;
    using Word [[gnu::vector_size(64)]] = uint32_t;
    const Word bits = __builtin_convertvector(*reinterpret_cast<const Half*>(from), Word) << 16;
    static_assert(std::is_same_v<T, float>);
    std::memcpy(&lanes, &bits, sizeof(lanes));
  } else {
    lanes = *reinterpret_cast<const typename Wide<T>::InMemory*>(from);
  }
}

template <typename T, int64_t kCount>
struct Some {
  using Vector [[gnu::vector_size(kCount * sizeof(T))]] = T;
};

// The lower half of a vector joined with the upper.
template <typename Fold, typename Half, typename Whole, size_t... kIndex>
[[gnu::always_inline]] inline void join_half(Half& low, const Whole& whole,
                                             std::index_sequence<kIndex...>) {
  low = __builtin_shufflevector(whole, whole, kIndex...);
  const Half high = __builtin_shufflevector(whole, whole, (kIndex + sizeof...(kIndex))...);
  Fold::join(low, high);
}
// kCount lanes in halves, as join_lanes() does it.
template <typename Fold, typename T, int64_t kCount>
[[gnu::always_inline]] inline T join_vector(const typename Some<T, kCount>::Vector& lanes) {
  if constexpr (kCount > 4) {
    typename Some<T, kCount / 2>::Vector low;
    join_half<Fold>(low, lanes, std::make_index_sequence<kCount / 2>());
    return join_vector<Fold, T, kCount / 2>(low);
  } else {
    T first = lanes[0], second = lanes[1];
    const T third = lanes[2], fourth = lanes[3];
    Fold::join(first, third);
    Fold::join(second, fourth);
    Fold::join(first, second);
    return first;
  }
}
// All lanes of a fold that does not choose.
template <typename Fold, typename T>
[[gnu::always_inline]] inline T join_vectors(typename Wide<T>::Vector* lanes) {
#pragma GCC unroll 8
  for (int64_t half = Wide<T>::kVectors / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int64_t k = 0; k < half; ++k) Fold::join(lanes[k], lanes[k + half]);
  }
  return join_vector<Fold, T, Wide<T>::kWidth>(lanes[0]);
}
// Joins more(i) into lane i, for the `count` elements behind the last whole vectors.
template <typename Fold, typename T, typename More>
[[gnu::always_inline]] inline void join_rest(typename Wide<T>::Vector* vectors, int64_t count,
                                             More&& more) {
  if (count == 0) return;
  T lanes[kFoldLanes];
  std::memcpy(lanes, vectors, sizeof(lanes));
  for (int64_t i = 0; i < count; ++i) join_element<Fold>(lanes[i], more(i));
  std::memcpy(vectors, lanes, sizeof(lanes));
}

// n <= kBlock elements E, which become lanes T.
template <typename Fold, typename T, typename E>
[[gnu::always_inline]] inline T fold_lanes(const E* x, int64_t n) {
  const int64_t full = n - n % kFoldLanes;
  if constexpr (chooses<Fold>()) {
    T lanes[kFoldLanes];
    for (T& lane : lanes) lane = Fold::neutral();
    for (int64_t i = 0; i < full; i += kFoldLanes) {
      for (int64_t k = 0; k < kFoldLanes; ++k)
        join_element<Fold>(lanes[k], T{native::load(x[i + k])});
    }
    for (int64_t i = full; i < n; ++i) join_element<Fold>(lanes[i - full], T{native::load(x[i])});
    return join_lanes<kFoldLanes, Fold>(lanes);
  } else {
    using W = Wide<T>;
    typename W::Vector sums[W::kVectors];
    for (typename W::Vector& sum : sums) sum = typename W::Vector{} + Fold::neutral();
    for (int64_t i = 0; i < full; i += kFoldLanes) {
#pragma GCC unroll 8
      for (int64_t k = 0; k < W::kVectors; ++k) {
        typename W::Vector element;
        read_vector<T>(element, x + i + k * W::kWidth);
        Fold::prepare(element);
        Fold::join(sums[k], element);
      }
    }
    join_rest<Fold, T>(sums, n - full, [&](int64_t i) { return T{native::load(x[full + i])}; });
    return join_vectors<Fold, T>(sums);
  }
}
template <typename Fold, typename T, typename E>
DC_VECTOR_CLONES T fold_long_chunk(const E* x, int64_t n) {
  return fold_lanes<Fold, T>(x, n);
}
// The same for some chunks, `step` elements apart.
template <typename Fold, typename T>
DC_VECTOR_CLONES void fold_long_chunks(T* __restrict results, const T* x, int64_t step,
                                       int64_t chunks, int64_t n) {
  for (int64_t i = 0; i < chunks; ++i) results[i] = fold_lanes<Fold, T>(x + i * step, n);
}

// n <= kBlock elements, at least one.
template <typename Fold, typename T>
inline T fold_chunk(const T* x, int64_t n) {
  return n <= kFoldLanes / 2 ? fold_few<Fold>(x, n) : fold_long_chunk<Fold, T>(x, n);
}

// Chunks of n <= kLanes elements, `step` elements apart, in as many lanes.
template <int64_t kLanes, bool kFull, typename Fold, typename T>
[[gnu::always_inline]] inline void fold_in_lanes(T* __restrict results, const T* x, int64_t step,
                                                 int64_t chunks, int64_t n) {
  for (int64_t i = 0; i < chunks; ++i) {
    T lanes[kLanes];
#pragma GCC unroll 16
    for (int64_t k = 0; k < kLanes; ++k) {
      lanes[k] = Fold::neutral();
      if (kFull || k < n) join_element<Fold>(lanes[k], x[i * step + k]);
    }
    results[i] = join_lanes<kLanes, Fold>(lanes);
  }
}
template <int64_t kLanes, typename Fold, typename T>
[[gnu::always_inline]] inline void fold_in_few_lanes(T* __restrict results, const T* x,
                                                     int64_t step, int64_t chunks, int64_t n) {
  n == kLanes ? fold_in_lanes<kLanes, true, Fold>(results, x, step, chunks, n)
              : fold_in_lanes<kLanes, false, Fold>(results, x, step, chunks, n);
}
// The same for some chunks of at most kFoldLanes / 2 elements, `step` elements apart.
template <typename Fold, typename T>
DC_VECTOR_CLONES void fold_few_chunks(T* __restrict results, const T* x, int64_t step,
                                      int64_t chunks, int64_t n) {
  if (n <= 2) return fold_in_few_lanes<2, Fold>(results, x, step, chunks, n);
  if (n <= 4) return fold_in_few_lanes<4, Fold>(results, x, step, chunks, n);
  if (n <= 8) return fold_in_few_lanes<8, Fold>(results, x, step, chunks, n);
  fold_in_few_lanes<16, Fold>(results, x, step, chunks, n);
}

// The sum of squared distances from the mean of n <= kBlock elements E.
template <typename T, typename E>
DC_VECTOR_CLONES double sum_of_squares(const E* x, T mean, int64_t n) {
  using W = Wide<T>;
  const int64_t full = n - n % kFoldLanes;
  typename W::Vector sums[W::kVectors] = {};
  for (int64_t i = 0; i < full; i += kFoldLanes) {
#pragma GCC unroll 8
    for (int64_t k = 0; k < W::kVectors; ++k) {
      typename W::Vector distance;
      read_vector<T>(distance, x + i + k * W::kWidth);
      distance = distance - mean;
      sums[k] = sums[k] + distance * distance;
    }
  }
  join_rest<SumFold<T>, T>(sums, n - full, [&](int64_t i) {
    const T distance = T{native::load(x[full + i])} - mean;
    return distance * distance;
  });
  return static_cast<double>(join_vectors<SumFold<T>, T>(sums));
}

// into[i] joined with x[i], then x[step + i], and so on for `rows` rows of elements E.
template <typename Fold, typename T, typename E>
DC_VECTOR_CLONES void fold_columns(T* __restrict into, const E* x, int64_t step, int64_t rows,
                                   int64_t n) {
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4, x += 4 * step) {
    for (int64_t i = 0; i < n; ++i) {
      T sum = into[i];
      join_element<Fold>(sum, T{native::load(x[i])});
      join_element<Fold>(sum, T{native::load(x[step + i])});
      join_element<Fold>(sum, T{native::load(x[2 * step + i])});
      join_element<Fold>(sum, T{native::load(x[3 * step + i])});
      into[i] = sum;
    }
  }
  for (; row < rows; ++row, x += step) {
    for (int64_t i = 0; i < n; ++i) join_element<Fold>(into[i], T{native::load(x[i])});
  }
}
// Joins lanes to totals, and makes them neutral.
template <typename Fold, typename T>
DC_VECTOR_CLONES void join_to_totals(typename Fold::Total* __restrict totals, T* __restrict lanes,
                                     int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    totals[i] = Fold::join_totals(totals[i], lanes[i]);
    lanes[i] = Fold::neutral();
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
