// The product in tiles that stay in registers, for the instruction set that the including file is
// compiled for. It includes nothing with inline functions of the standard library: the linker would
// keep one copy of them, perhaps one for another CPU.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "runtime/kernel/native/attention/multiply.h"

namespace dc::runtime::kernel::native {
namespace {

// kColumns floats.
#if defined(__AVX512F__)
struct Vector {
  __m512 all;
};
inline Vector load(const float* from) { return {_mm512_loadu_ps(from)}; }
inline void store(float* to, Vector x) { _mm512_storeu_ps(to, x.all); }
inline Vector repeat(float x) { return {_mm512_set1_ps(x)}; }
inline Vector fma(Vector a, Vector b, Vector c) { return {_mm512_fmadd_ps(a.all, b.all, c.all)}; }
inline Vector add(Vector a, Vector b) { return {_mm512_add_ps(a.all, b.all)}; }
constexpr int kSums = 24, kVectors = 4;  // registers that hold sums, of 32; at most, across a tile
#elif defined(__AVX2__) && defined(__FMA__)
struct Vector {
  __m256 low, high;
};
inline Vector load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
inline void store(float* to, Vector x) {
  _mm256_storeu_ps(to, x.low);
  _mm256_storeu_ps(to + 8, x.high);
}
inline Vector repeat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vector fma(Vector a, Vector b, Vector c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Vector add(Vector a, Vector b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
constexpr int kSums = 6, kVectors = 1;  // two registers each, of 16
#else
struct Vector {
  float lanes[kColumns];
};
inline Vector load(const float* from) {
  Vector x;
  for (int i = 0; i < kColumns; ++i) x.lanes[i] = from[i];
  return x;
}
inline void store(float* to, Vector x) {
  for (int i = 0; i < kColumns; ++i) to[i] = x.lanes[i];
}
inline Vector repeat(float value) {
  Vector x;
  for (int i = 0; i < kColumns; ++i) x.lanes[i] = value;
  return x;
}
inline Vector fma(Vector a, Vector b, Vector c) {
  for (int i = 0; i < kColumns; ++i)
    c.lanes[i] = __builtin_fmaf(a.lanes[i], b.lanes[i], c.lanes[i]);
  return c;
}
inline Vector add(Vector a, Vector b) {
  for (int i = 0; i < kColumns; ++i) a.lanes[i] = a.lanes[i] + b.lanes[i];
  return a;
}
constexpr int kSums = 6, kVectors = 1;
#endif

// Rows of a tile: few columns have more of them, so that enough sums are under way.
template <int vectors>
constexpr int kRows = kSums / vectors < 12 ? kSums / vectors : 12;

// What a tile sums up, in registers.
template <int rows, int vectors>
struct Sums {
  Vector of[rows][vectors];
};

template <int rows, int vectors>
void clear(Sums<rows, vectors>& sums) {
#pragma GCC unroll 12
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 12
    for (int v = 0; v < vectors; ++v) sums.of[i][v] = repeat(0);
  }
}

// Adds a[.][k] * b[k][.] of every so many k from `first` to before `end`. Inlined, since sums
// behind a reference would go to memory in every turn.
template <int rows, int vectors>
[[gnu::always_inline]] inline void sum_up(Sums<rows, vectors>& sums, const SmallProduct& p,
                                          const float* a, const float* b, int64_t first,
                                          int64_t end, int64_t every) {
  a += first * p.a_column;
  b += first * p.b_row;
  for (int64_t k = first; k < end; k += every, a += every * p.a_column, b += every * p.b_row) {
    Vector right[vectors];
#pragma GCC unroll 12
    for (int v = 0; v < vectors; ++v) right[v] = load(b + v * kColumns);
#pragma GCC unroll 12
    for (int i = 0; i < rows; ++i) {
      const Vector left = repeat(a[i * p.a_row]);
#pragma GCC unroll 12
      for (int v = 0; v < vectors; ++v) sums.of[i][v] = fma(left, right[v], sums.of[i][v]);
    }
  }
}

// The order of multiply.
struct InOrder {
  template <int rows, int vectors>
  static void tile(const SmallProduct& p, float* c, const float* a, const float* b) {
    Sums<rows, vectors> sums;
    clear(sums);
    if (p.adds) {
#pragma GCC unroll 12
      for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 12
        for (int v = 0; v < vectors; ++v) sums.of[i][v] = load(c + i * p.c_row + v * kColumns);
      }
    }
    sum_up(sums, p, a, b, 0, p.depth, 1);
#pragma GCC unroll 12
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 12
      for (int v = 0; v < vectors; ++v) store(c + i * p.c_row + v * kColumns, sums.of[i][v]);
    }
  }
};

// The order of multiply_bf16.
struct InPairs {
  template <int rows, int vectors>
  static void tile(const SmallProduct& p, float* c, const float* a, const float* b) {
    if (!p.adds) {
      for (int i = 0; i < rows; ++i) {
        for (int v = 0; v < vectors; ++v) store(c + i * p.c_row + v * kColumns, repeat(0));
      }
    }
    for (int64_t first = 0; first < p.depth; first += kPairDepth) {
      const int64_t full = first + kPairDepth, end = p.depth < full ? p.depth : full;
      Sums<rows, vectors> even, odd;
      clear(even);
      clear(odd);
      sum_up(even, p, a, b, first, end, 2);
      sum_up(odd, p, a, b, first + 1, end, 2);
      for (int i = 0; i < rows; ++i) {
        for (int v = 0; v < vectors; ++v) {
          // AMX fills what is missing with zeros, so minus zero becomes zero.
          const Vector one = end + 1 < full ? add(even.of[i][v], repeat(0)) : even.of[i][v];
          const Vector other = end < full ? add(odd.of[i][v], repeat(0)) : odd.of[i][v];
          float* to = c + i * p.c_row + v * kColumns;
          store(to, add(load(to), add(one, other)));
        }
      }
    }
  }
};

template <typename Order, int rows, int vectors>
void tile(const SmallProduct& p, int64_t row, int64_t column) {
  Order::template tile<rows, vectors>(p, p.c + row * p.c_row + column, p.a + row * p.a_row,
                                      p.b + column);
}

// The last rows of some columns, fewer than a tile has.
template <typename Order, int vectors, int rows>
void last_rows(const SmallProduct& p, int64_t row, int64_t column) {
  if constexpr (rows > 0) {
    if (p.rows - row == rows) return tile<Order, rows, vectors>(p, row, column);
    last_rows<Order, vectors, rows - 1>(p, row, column);
  }
}

template <typename Order, int vectors>
void rows_of(const SmallProduct& p, int64_t column) {
  constexpr int rows = kRows<vectors>;
  int64_t row = 0;
  for (; row + rows <= p.rows; row += rows) tile<Order, rows, vectors>(p, row, column);
  last_rows<Order, vectors, rows - 1>(p, row, column);
}

// The last columns, fewer than `vectors + 1` vectors.
template <typename Order, int vectors>
void last_columns(const SmallProduct& p, int64_t column) {
  if constexpr (vectors > 0) {
    if (p.columns - column == vectors * kColumns) return rows_of<Order, vectors>(p, column);
    last_columns<Order, vectors - 1>(p, column);
  }
}

template <typename Order>
void multiply_tiles(const SmallProduct& p) {
  int64_t column = 0;
  for (; column + kVectors * kColumns <= p.columns; column += kVectors * kColumns)
    rows_of<Order, kVectors>(p, column);
  last_columns<Order, kVectors - 1>(p, column);
}

}  // namespace
}  // namespace dc::runtime::kernel::native
