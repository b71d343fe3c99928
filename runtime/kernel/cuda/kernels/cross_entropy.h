// log_softmax and nll_loss of rows of logits, and both gradients.
#pragma once

#include "runtime/kernel/cuda/kernels/sums.h"
#include "runtime/kernel/scalar/math.h"

namespace dc::runtime::kernel::cuda {

template <typename T>
inline float logit_of(const CrossEntropy& parameters, int64_t row, int64_t column) {
  return scalar::load(static_cast<const T*>(parameters.logits)[row * parameters.classes + column]);
}

// A block takes a row: what the loss and the gradients need of it.
template <typename T>
inline void cross_entropy_rows(const CrossEntropy& parameters) {
  for (int64_t row = blockIdx.x; row < parameters.rows; row += gridDim.x) {
    float largest = -scalar::numeric_limits<float>::infinity();
    for (int64_t c = threadIdx.x; c < parameters.classes; c += kBlockThreads) {
      const float logit = logit_of<T>(parameters, row, c);
      largest = larger(largest, logit);
    }
    largest = block_largest(largest);
    double sum = 0;
    for (int64_t c = threadIdx.x; c < parameters.classes; c += kBlockThreads)
      sum += static_cast<double>(scalar::math::exp(logit_of<T>(parameters, row, c) - largest));
    sum = block_sum(sum);
    if (threadIdx.x != 0) continue;
    parameters.largest[row] = largest;
    parameters.log_of_sum[row] = static_cast<float>(scalar::log(sum));
  }
}

// One block. A class that there is not makes the loss NaN, which ends the run.
template <typename T>
inline void cross_entropy_loss(const CrossEntropy& parameters) {
  double sum = 0, total = 0;
  for (int64_t row = threadIdx.x; row < parameters.rows; row += kBlockThreads) {
    const int64_t target = parameters.targets[row];
    if (target == parameters.ignored) continue;
    total += 1;
    const bool exists = target >= 0 && target < parameters.classes;
    const float logit =
        exists ? logit_of<T>(parameters, row, target) : scalar::numeric_limits<float>::quiet_NaN();
    sum -= static_cast<double>(logit - parameters.largest[row] - parameters.log_of_sum[row]);
  }
  sum = block_sum(sum);
  total = block_sum(total);
  if (threadIdx.x != 0) return;
  *parameters.loss = static_cast<float>(parameters.is_mean ? sum / total : sum);
  *parameters.total = static_cast<float>(total);
}

// In place of the logits.
template <typename T>
inline void cross_entropy_gradients(const CrossEntropy& parameters) {
  float of_loss = *parameters.loss_gradient;
  if (parameters.is_mean) of_loss = of_loss / *parameters.total;
  const int64_t count = parameters.rows * parameters.classes;
  for (int64_t i = first_element<int64_t>(); i < count; i += all_threads<int64_t>()) {
    const int64_t row = i / parameters.classes, column = i % parameters.classes;
    const int64_t target = parameters.targets[row];
    const bool counts = target != parameters.ignored;
    const float sum = counts ? 0.0f - of_loss : 0.0f;
    const float y =
        logit_of<T>(parameters, row, column) - parameters.largest[row] - parameters.log_of_sum[row];
    const float own = counts && column == target ? -of_loss : 0.0f;
    static_cast<T*>(parameters.logits)[i] = scalar::store<T>(own - scalar::math::exp(y) * sum);
  }
}

}  // namespace dc::runtime::kernel::cuda
