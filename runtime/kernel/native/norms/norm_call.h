// Instructions of layer norm, RMS norm and their gradients while their kernels are being prepared,
// as CPUs and GPUs read them.
#pragma once

#include <optional>

#include "runtime/kernel/native/norms/rows.h"

namespace dc::runtime::kernel::native {

struct NormCall {
  bool is_centered = true;  // layer norm; RMS norm is not
  BoundTensor x;
  std::optional<BoundTensor> y;           // the result, or the gradient of x where it is wanted
  std::optional<BoundTensor> g;           // backward: the gradient of the result
  std::optional<BoundTensor> rstd, mean;  // a number for each row; forward where they are wanted
  // Of the normalized shape. Backward the gradients that are wanted.
  std::optional<BoundTensor> weight, bias, weight_gradient, bias_gradient;
  double eps = 0;  // forward
  Rows rows;       // x, y, g (one of the others where it is missing); then, if given, rstd, mean
};

NormCall read_norm(Call& call);
NormCall read_norm_gradients(Call& call);

}  // namespace dc::runtime::kernel::native
