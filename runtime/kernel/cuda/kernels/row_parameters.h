// The parameters of the kernels of softmax.h, norms.h and nll_loss.h, for those who launch them
// too.
#pragma once

#include "runtime/kernel/cuda/kernels/walk.h"
#include "runtime/kernel/scalar/row_places.h"

namespace dc::runtime::kernel::cuda {

// Numbers of any floating-point type, which is known when a kernel runs: weights, statistics of
// rows. Null: there are none.
struct Numbers {
  enum Type : int64_t { kF32, kBF16, kF16, kF64 };
  void* data;
  int64_t type, stride;
};

enum class SoftmaxKind { Plain, Safe, Logarithm };  // Safe: a row of -inf alone gives zeros
struct Softmax {
  const void* x;
  void* y;
  RowWalk<2> rows;  // x, y
  SoftmaxKind kind;
};
struct SoftmaxBackward {
  const void* g;
  const void* y;
  void* to;
  RowWalk<3> rows;  // g, y, to
  bool is_logarithm;
};

// Layer norm and RMS norm, which is not centered. Forward, y is the result; backward, the gradient
// of x, and null where that is not wanted.
struct Norm {
  const void* x;
  const void* g;
  void* y;
  RowWalk<5> rows;       // x, y, g; and of the numbers of rows: rstd, mean
  Numbers rstd, mean;    // of rows; their strides are those of the walk
  Numbers weight, bias;  // of columns
  double eps;
  bool is_centered;
};

// The gradients of weight and bias: sums over all rows of those of kRowsInPart rows each.
inline constexpr int64_t kRowsInPart = 64;
struct NormColumns {
  Norm norm;
  double* parts;  // [parts, 2, length]: of the weight, of the bias
  int64_t count;  // of parts
  Numbers of_weight, of_bias;
};

// Class numbers of rows of log-probabilities.
struct NllLoss {
  const void* values;
  const int64_t* targets;
  int64_t rows, classes;
  scalar::RowPlaces self_rows, target_rows, loss_rows;
  int64_t class_stride, ignored;
  bool is_mean, is_reduced;
  Numbers weight;
  Numbers loss, total;  // results; `loss` of each row or of all
};
struct NllLossBackward {
  NllLoss of;
  Numbers g, total;
  void* to;
  scalar::RowPlaces to_rows;
  int64_t to_class;
};

}  // namespace dc::runtime::kernel::cuda
