#include "runtime/kernel/native/copies/transpose.h"

#include <algorithm>
#include <utility>

#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {
namespace {

// A square of as many rows as 16 bytes have elements.
template <typename T>
struct Square {
  static constexpr int kSide = 16 / sizeof(T);
  using Row [[gnu::vector_size(16)]] = T;
  using InMemory [[gnu::vector_size(16), gnu::aligned(sizeof(T)), gnu::may_alias]] = T;
};

// Elements of a and b in turns: of their first halves, or of their second.
template <bool kSecond, typename Row, int... kIndex>
[[gnu::always_inline]] inline void interleave(Row& to, const Row& a, const Row& b,
                                              std::integer_sequence<int, kIndex...>) {
  constexpr int kSide = sizeof...(kIndex), kFirst = kSecond ? kSide / 2 : 0;
  to = __builtin_shufflevector(a, b, (kFirst + kIndex / 2 + kIndex % 2 * kSide)...);
}

template <typename T>
[[gnu::always_inline]] inline void transpose_square(T* to, int64_t to_row, const T* from,
                                                    int64_t from_row) {
  using S = Square<T>;
  constexpr int kSide = S::kSide;
  constexpr auto kLanes = std::make_integer_sequence<int, kSide>();
  typename S::Row rows[kSide], mixed[kSide];
#pragma GCC unroll 8
  for (int i = 0; i < kSide; ++i)
    rows[i] = *reinterpret_cast<const typename S::InMemory*>(from + i * from_row);
    // Each round moves one bit of an element's row into its column.
#pragma GCC unroll 8
  for (int round = 1; round < kSide; round *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < kSide / 2; ++i) {
      interleave<false>(mixed[2 * i], rows[i], rows[i + kSide / 2], kLanes);
      interleave<true>(mixed[2 * i + 1], rows[i], rows[i + kSide / 2], kLanes);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kSide; ++i) rows[i] = mixed[i];
  }
#pragma GCC unroll 8
  for (int i = 0; i < kSide; ++i)
    *reinterpret_cast<typename S::InMemory*>(to + i * to_row) = rows[i];
}

template <typename T>
[[gnu::always_inline]] inline void transpose_all(T* __restrict to, int64_t to_row, const T* from,
                                                 int64_t from_row, int64_t rows, int64_t columns) {
  constexpr int64_t kSide = Square<T>::kSide;
  constexpr int64_t kStrip = 4 * kSide;  // rows that make whole cache lines of a column
  const int64_t square_rows = rows / kSide * kSide, square_columns = columns / kSide * kSide;
  for (int64_t first = 0; first < square_rows; first += kStrip) {
    const int64_t end = std::min(first + kStrip, square_rows);
    for (int64_t j = 0; j < square_columns; j += kSide) {
      for (int64_t i = first; i < end; i += kSide)
        transpose_square(to + j * to_row + i, to_row, from + i * from_row + j, from_row);
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = i < square_rows ? square_columns : 0; j < columns; ++j)
      to[j * to_row + i] = from[i * from_row + j];
  }
}

}  // namespace

DC_VECTOR_CLONES void transpose(float* __restrict to, int64_t to_row, const float* from,
                                int64_t from_row, int64_t rows, int64_t columns) {
  transpose_all(to, to_row, from, from_row, rows, columns);
}
DC_VECTOR_CLONES void transpose(uint16_t* __restrict to, int64_t to_row, const uint16_t* from,
                                int64_t from_row, int64_t rows, int64_t columns) {
  transpose_all(to, to_row, from, from_row, rows, columns);
}

}  // namespace dc::runtime::kernel::native
