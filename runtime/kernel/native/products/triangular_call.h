// An instruction that solves equations with triangular matrices, A X = B or X A = B, while its
// kernel is being prepared, as CPUs and GPUs read it.
#pragma once

#include "runtime/kernel/native/call.h"
#include "runtime/kernel/native/iteration.h"

namespace dc::runtime::kernel::native {

// A matrix of a tensor's last two dims, as A X = B has it.
struct MatrixTensor {
  void* data = nullptr;         // of the first one, on the device
  int64_t row = 0, column = 0;  // strides in elements
};

// As A X = B: X A = B is solved as its transpose.
struct TriangularCall {
  base::DType dtype = base::DType::F32;  // of all; f32 or f64
  MatrixTensor a, b, x;
  int64_t size = 0, columns = 0;  // of A; of X
  bool is_upper = false, has_unit_diagonal = false;
  Iteration batch;  // over x, a, b
};
TriangularCall read_triangular(Call& call);

}  // namespace dc::runtime::kernel::native
