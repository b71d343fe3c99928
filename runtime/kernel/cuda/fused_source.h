// CUDA C++ for an Expression: one kernel, whose threads compute elements of all results.
#pragma once

#include <string>
#include <vector>

#include "runtime/kernel/cuda/kernel_source.h"
#include "runtime/kernel/native/pointwise/expression_tensors.h"

namespace dc::runtime::kernel::cuda {

struct FusedSource {
  // A reduction that makes a result of each column.
  struct Fold {
    size_t result = 0;
    std::string kind;  // SumFold and the like, of kernels/reduce.h
    base::DType from = base::DType::F32;
    double divisor = 1;
  };
  KernelSource kernel;
  // The rows are folded in so many parts. The kernel's last parameter is memory for the totals of
  // these, 8 bytes each, [folds, parts, columns], which are folded next (totals_launch of
  // reduce_kernels.h). None without folds.
  int64_t parts = 0;
  std::vector<Fold> folds;
};

// A kernel that gives the bits of the kernels of the expression's operations, run one after the
// other: the types of runtime/kernel/scalar, each value rounded to its element type; reductions in
// the order of kernels/reduce.h. Shapes and strides are constants in it. Its parameter has the
// addresses of element 0 of the results, then of the operands. Equal arguments give equal text; the
// name is a hash of the text.
//
// Unsupported (81) for an operation that is neither element-wise nor a reduction.
base::Result<FusedSource> fused_source(const base::Expression& expression,
                                       const native::ExpressionTensors& tensors);

}  // namespace dc::runtime::kernel::cuda
