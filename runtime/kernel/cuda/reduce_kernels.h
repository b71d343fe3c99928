// Folds over dims, for operators that are made of them.
#pragma once

#include <string>
#include <vector>

#include "runtime/kernel/cuda/kernels/walk.h"
#include "runtime/kernel/cuda/workshop.h"
#include "runtime/kernel/native/call.h"

namespace dc::runtime::kernel::cuda {

// The sums of `from` over these dims; `to` has the others. Refuses what does not fit.
base::Result<Launch> sum_launch(Workshop& workshop, native::Call& call, const BoundTensor& from,
                                const BoundTensor& to, const std::vector<int64_t>& dims);

// Into how many parts the terms of few columns are split, so that all of a GPU has work; by the
// shape alone, since the order of terms depends on it.
int64_t column_parts(int64_t results, int64_t terms);

// Totals of parts, [parts, results] of 8 bytes, on their way to results.
struct Totals {
  std::byte* data;
  int64_t parts;
  std::string fold;       // SumFold and the like, of kernels/reduce.h
  base::DType from;       // of what was folded
  const BoundTensor* to;  // the results' tensor
  const Walk<2>* kept;    // of the results; strides of tensor 1 are the tensor's
  double divisor;         // of floating-point totals
};
base::Result<Launch> totals_launch(Workshop& workshop, const Totals& totals);

}  // namespace dc::runtime::kernel::cuda
