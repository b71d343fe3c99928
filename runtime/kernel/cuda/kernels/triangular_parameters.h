// The parameter of the kernel of triangular.h, for those who launch it too.
#pragma once

#include "runtime/kernel/cuda/kernels/walk.h"

namespace dc::runtime::kernel::cuda {

// A X = B for each matrix of a batch; matrices' strides from row to row and column to column.
struct MatrixPlace {
  void* data;
  int64_t row, column;
};
struct TriangularSystem {
  MatrixPlace a, b, x;
  Walk<3> batch;  // x, a, b
  int64_t size, columns;
  bool is_upper, has_unit_diagonal;
};

}  // namespace dc::runtime::kernel::cuda
