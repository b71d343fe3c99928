// Products of f32 matrices that lie in the cache: the inner products of attention.
//
// c[i][j] is the sum over k of a[i][k] * b[k][j], k in order, each step one fused multiply-add. So
// bits depend neither on the vector width nor on how the matrices are cut into tiles.
#pragma once

#include <cstdint>

namespace dc::runtime::kernel::native {

inline constexpr int64_t kColumns = 16;  // what the number of columns is a multiple of

// All distances in elements.
struct SmallProduct {
  float* c;
  int64_t c_row;  // from one row to the next; columns lie one behind the other
  const float* a;
  int64_t a_row, a_column;
  const float* b;
  int64_t b_row;
  int64_t rows, depth, columns;
  bool adds;  // to what c holds
};

void multiply(const SmallProduct& product);

// One for each instruction set; the widest that the CPU has is taken.
void multiply_v4(const SmallProduct& product);     // AVX-512
void multiply_v3(const SmallProduct& product);     // AVX2 and FMA
void multiply_plain(const SmallProduct& product);  // any CPU; fmaf may be a call

}  // namespace dc::runtime::kernel::native
