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
constexpr int kRows = 6, kVectors = 4;  // of a tile: 24 of 32 registers are sums
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
constexpr int kRows = 6, kVectors = 1;  // 12 of 16 registers
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
constexpr int kRows = 6, kVectors = 1;
#endif

// What a tile sums up, in registers.
template <int vectors>
struct Sums {
  Vector of[kRows][vectors];
};

template <int rows, int vectors>
void clear(Sums<vectors>& sums) {
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) sums.of[i][v] = repeat(0);
  }
}

// Adds a[.][k] * b[k][.] of every so many k from `first` to before `end`.
template <int rows, int vectors>
void sum_up(Sums<vectors>& sums, const SmallProduct& p, const float* a, const float* b,
            int64_t first, int64_t end, int64_t every) {
  a += first * p.a_column;
  b += first * p.b_row;
  for (int64_t k = first; k < end; k += every, a += every * p.a_column, b += every * p.b_row) {
    Vector right[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) right[v] = load(b + v * kColumns);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const Vector left = repeat(a[i * p.a_row]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sums.of[i][v] = fma(left, right[v], sums.of[i][v]);
    }
  }
}

// The order of multiply.
struct InOrder {
  template <int rows, int vectors>
  static void tile(const SmallProduct& p, float* c, const float* a, const float* b) {
    Sums<vectors> sums;
    clear<rows>(sums);
    if (p.adds) {
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) sums.of[i][v] = load(c + i * p.c_row + v * kColumns);
      }
    }
    sum_up<rows>(sums, p, a, b, 0, p.depth, 1);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
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
      Sums<vectors> even, odd;
      clear<rows>(even);
      clear<rows>(odd);
      sum_up<rows>(even, p, a, b, first, end, 2);
      sum_up<rows>(odd, p, a, b, first + 1, end, 2);
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

template <typename Order, int vectors>
void rows_of(const SmallProduct& p, int64_t column) {
  int64_t row = 0;
  for (; row + kRows <= p.rows; row += kRows) tile<Order, kRows, vectors>(p, row, column);
  switch (p.rows - row) {
    case 5:
      return tile<Order, 5, vectors>(p, row, column);
    case 4:
      return tile<Order, 4, vectors>(p, row, column);
    case 3:
      return tile<Order, 3, vectors>(p, row, column);
    case 2:
      return tile<Order, 2, vectors>(p, row, column);
    case 1:
      return tile<Order, 1, vectors>(p, row, column);
    default:
      return;
  }
}

template <typename Order>
void multiply_tiles(const SmallProduct& p) {
  int64_t column = 0;
  for (; column + kVectors * kColumns <= p.columns; column += kVectors * kColumns)
    rows_of<Order, kVectors>(p, column);
  for (; column < p.columns; column += kColumns) rows_of<Order, 1>(p, column);
}

}  // namespace
}  // namespace dc::runtime::kernel::native
