// The parameters of the kernels of copies.h, for those who launch them too.
#pragma once

#include "runtime/kernel/cuda/kernels/walk.h"

namespace dc::runtime::kernel::cuda {

using scalar::uint64_t;

// As many bytes as a thread moves at once.
struct alignas(16) Word16 {
  uint64_t low, high;
};

// Of the element types, or the words, that the kernel is for.
struct CopyRegion {
  void* to;
  const void* from;
  Walk<2> walk;  // to, from
};
struct FillRegion {
  Word16 value;  // its first bytes
  void* to;
  Walk<1> walk;
};

// Row r of a matrix keeps its columns up to (lower) or from r + diagonal on; the others are zero.
struct Triangle {
  void* to;
  const void* from;
  Walk<2> matrices;  // to, from
  int64_t rows, columns, diagonal;
  int64_t to_row, to_column, from_row, from_column;  // strides
  bool is_lower;
};

// start + i * step: in f64 for floating-point elements, else in i64, which wraps.
struct Arange {
  void* to;
  int64_t count, stride;
  int64_t start, step;
  double floating_start, floating_step;
};

}  // namespace dc::runtime::kernel::cuda
