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
constexpr int kRows = 6, kVectors = 1;
#endif

template <int rows, int vectors>
void tile(const SmallProduct& p, int64_t row, int64_t column) {
  float* c = p.c + row * p.c_row + column;
  const float* a = p.a + row * p.a_row;
  const float* b = p.b + column;
  Vector sums[rows][vectors];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v)
      sums[i][v] = p.adds ? load(c + i * p.c_row + v * kColumns) : repeat(0);
  }
  for (int64_t k = 0; k < p.depth; ++k, a += p.a_column, b += p.b_row) {
    Vector right[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) right[v] = load(b + v * kColumns);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const Vector left = repeat(a[i * p.a_row]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sums[i][v] = fma(left, right[v], sums[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) store(c + i * p.c_row + v * kColumns, sums[i][v]);
  }
}

template <int vectors>
void rows_of(const SmallProduct& p, int64_t column) {
  int64_t row = 0;
  for (; row + kRows <= p.rows; row += kRows) tile<kRows, vectors>(p, row, column);
  switch (p.rows - row) {
    case 5:
      return tile<5, vectors>(p, row, column);
    case 4:
      return tile<4, vectors>(p, row, column);
    case 3:
      return tile<3, vectors>(p, row, column);
    case 2:
      return tile<2, vectors>(p, row, column);
    case 1:
      return tile<1, vectors>(p, row, column);
    default:
      return;
  }
}

void multiply_tiles(const SmallProduct& p) {
  int64_t column = 0;
  for (; column + kVectors * kColumns <= p.columns; column += kVectors * kColumns)
    rows_of<kVectors>(p, column);
  for (; column < p.columns; column += kColumns) rows_of<1>(p, column);
}

}  // namespace
}  // namespace dc::runtime::kernel::native
