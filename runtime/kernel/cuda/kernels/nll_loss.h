// nll_loss of rows of log-probabilities with class numbers, and its gradient. A class that there is
// not makes the loss NaN, which ends the run.
#pragma once

#include "runtime/kernel/cuda/kernels/blocks.h"
#include "runtime/kernel/cuda/kernels/numbers.h"

namespace dc::runtime::kernel::cuda {

// What a row adds to the sum of losses, and to that of weights.
struct RowLoss {
  float value, weight;
};
inline float weight_of_class(const NllLoss& of, int64_t target) {
  return of.weight.data == nullptr ? 1.0f : number_at<float>(of.weight, target * of.weight.stride);
}
template <typename T>
inline RowLoss row_loss(const NllLoss& of, int64_t row) {
  const int64_t target = of.targets[of.target_rows.at(row)];
  if (target == of.ignored) return {0, 0};
  if (target < 0 || target >= of.classes) return {scalar::numeric_limits<float>::quiet_NaN(), 0};
  const T* values = static_cast<const T*>(of.values);
  const float weight = weight_of_class(of, target);
  return {-weight * scalar::load(values[of.self_rows.at(row) + target * of.class_stride]), weight};
}

// One block: sums in f64.
template <typename T>
inline void nll_loss(const NllLoss& parameters) {
  double sum = 0, total = 0;
  for_each_in_block(parameters.rows, [&](int64_t row) {
    const RowLoss own = row_loss<T>(parameters, row);
    sum += static_cast<double>(own.value);
    total += static_cast<double>(own.weight);
    if (!parameters.is_reduced)
      put_number(parameters.loss, parameters.loss_rows.at(row), own.value);
  });
  sum = block_sum(sum);
  total = block_sum(total);
  if (threadIdx.x != 0) return;
  if (parameters.is_reduced) put_number(parameters.loss, 0, parameters.is_mean ? sum / total : sum);
  put_number(parameters.total, 0, parameters.is_reduced ? total : 0.0);
}

// Of rows whose gradients are zeros.
template <typename T>
inline void nll_loss_gradients(const NllLossBackward& parameters) {
  const NllLoss& of = parameters.of;
  T* to = static_cast<T*>(parameters.to);
  for (int64_t row = first_element<int64_t>(); row < of.rows; row += all_threads<int64_t>()) {
    const int64_t target = of.targets[of.target_rows.at(row)];
    if (target == of.ignored || target < 0 || target >= of.classes) continue;
    float g = number_at<float>(parameters.g, of.is_reduced ? 0 : of.loss_rows.at(row));
    if (of.is_mean) g = g / number_at<float>(parameters.total, 0);
    to[parameters.to_rows.at(row) + target * parameters.to_class] =
        scalar::store<T>(-g * weight_of_class(of, target));
  }
}

}  // namespace dc::runtime::kernel::cuda
