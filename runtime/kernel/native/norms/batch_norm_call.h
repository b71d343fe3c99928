// Instructions of batch norms and their gradients while their kernels are being prepared: the
// operators by name, and what kernels of CPUs and of GPUs read of them.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/kernel/native/call.h"

namespace dc::runtime::kernel::native {

struct BatchNormOperator {
  std::string_view op;
  std::string_view trains;  // the argument that says whether it trains; none: it does not
  bool updates = false;     // results 3 and 4 are the new running statistics
  std::string_view rstd;    // of gradients: what saved deviations are called; else none
};
inline constexpr BatchNormOperator kBatchNormOperators[] = {
    {"aten._batch_norm_no_update.default", "", false, ""},
    {"aten._native_batch_norm_legit.no_stats", "training", false, ""},
    {"aten._native_batch_norm_legit_functional.default", "training", true, ""},
    {"aten._native_batch_norm_legit_no_training.default", "", false, ""},
    {"aten.batch_norm_backward.default", "update", false, "save_var"},
    {"aten.native_batch_norm_backward.default", "train", false, "save_invstd"},
};

struct BatchNormCall {
  bool is_gradient = false, trains = false;
  double momentum = 0, eps = 0;
  BoundTensor x;                 // [batch, channels, ...], with elements
  std::optional<BoundTensor> y;  // the result, or the gradient of x where it is wanted
  std::optional<BoundTensor> g;  // of gradients: that of the result
  // A number for each channel, where they are given or wanted.
  std::optional<BoundTensor> weight, bias, running_mean, running_var;
  std::optional<BoundTensor> mean, rstd;  // of the batch: results, or operands of gradients
  std::optional<BoundTensor> new_mean, new_var, weight_gradient, bias_gradient;
};
// Of an instruction whose operator is in the table.
BatchNormCall read_batch_norm(Call& call);

}  // namespace dc::runtime::kernel::native
