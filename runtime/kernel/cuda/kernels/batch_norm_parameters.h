// The parameter of the kernels of batch_norm.h, for those who launch them too.
#pragma once

#include "runtime/kernel/cuda/kernels/row_parameters.h"

namespace dc::runtime::kernel::cuda {

// Elements of a channel in each part, but for the last one; fewer parts of more elements where
// there would be more than kMostNormParts.
inline constexpr int64_t kNormPartElements = 4096, kMostNormParts = 64;

// Forward, y is the result; backward, the gradient of x, and null where that is not wanted.
struct BatchNorm {
  const void* x;
  const void* g;
  void* y;
  Walk<3> elements;    // of one channel: x, g, y
  int64_t between[3];  // from one channel to the next
  int64_t channels, parts, length;
  double* sums;  // [channels, parts, 2]
  // Of channels. In training the statistics of the batch are made forward, and read backward.
  Numbers weight, bias, running_mean, running_var, mean, rstd;
  Numbers new_mean, new_var;   // results
  Numbers of_weight, of_bias;  // gradients
  double momentum, eps;
  bool trains;
};

}  // namespace dc::runtime::kernel::cuda
