// The loss of an output layer and the gradients of its logits, some rows or classes at a time.
#pragma once

#include "runtime/kernel/cuda/kernels/blocks.h"
#include "runtime/kernel/cuda/kernels/logit_parameters.h"
#include "runtime/kernel/scalar/elements.h"
#include "runtime/kernel/scalar/math.h"

namespace dc::runtime::kernel::cuda {

template <typename T>
inline const T* logits_of_row(const LogitPart& part, int64_t row) {
  return row < part.rows_in_first
             ? static_cast<const T*>(part.logits) + row * part.classes
             : static_cast<const T*>(part.more_logits) + (row - part.rows_in_first) * part.classes;
}

// A block takes a row.
template <typename T>
inline void logit_powers(const LogitPart& parameters) {
  for (int64_t row = blockIdx.x; row < parameters.rows; row += gridDim.x) {
    const T* logits = logits_of_row<T>(parameters, row);
    float largest = minus_infinity<float>();
    for_each_in_block(parameters.classes,
                      [&](int64_t c) { largest = larger(largest, scalar::load(logits[c])); });
    largest = block_largest(largest);
    double sum = 0;
    for_each_in_block(parameters.classes, [&](int64_t c) {
      sum += static_cast<double>(scalar::math::exp(scalar::load(logits[c]) - largest));
    });
    sum = block_sum(sum);
    if (threadIdx.x != 0) continue;
    parameters.powers[row] = {sum, largest};
    const int64_t place = parameters.targets[row] - parameters.first_class;
    if (place >= 0 && place < parameters.classes) parameters.own[row] = scalar::load(logits[place]);
  }
}

// One block. How many rows count.
inline void logit_total(const LogitLoss& parameters) {
  double total = 0;
  for_each_in_block(parameters.rows, [&](int64_t row) {
    total += parameters.targets[row] == parameters.ignored ? 0 : 1;
  });
  total = block_sum(total);
  if (threadIdx.x == 0) *parameters.total = static_cast<float>(total);
}

// A thread takes a row. A class that there is not makes the loss NaN, which ends the run.
inline void logit_rows(const LogitLoss& parameters) {
  const int64_t rows = parameters.rows;
  for (int64_t row = first_element<int64_t>(); row < rows; row += all_threads<int64_t>()) {
    const LogitPowers* powers = parameters.powers + row;
    float largest = minus_infinity<float>();
    for (int64_t p = 0; p < parameters.parts; ++p)
      largest = larger(largest, powers[p * rows].largest);
    double sum = 0;
    for (int64_t p = 0; p < parameters.parts; ++p) {
      const LogitPowers& part = powers[p * rows];
      // A part of -inf alone adds nothing.
      if (part.largest == minus_infinity<float>() && largest != part.largest) continue;
      sum += part.sum * static_cast<double>(scalar::math::exp(part.largest - largest));
    }
    const auto log_of_sum = static_cast<float>(scalar::log(sum));
    parameters.largest[row] = largest;
    parameters.log_of_sum[row] = log_of_sum;
    const int64_t target = parameters.targets[row];
    const bool exists = target >= 0 && target < parameters.classes;
    const float loss = exists ? -(parameters.own[row] - largest - log_of_sum)
                              : scalar::numeric_limits<float>::quiet_NaN();
    parameters.losses[row] = target == parameters.ignored ? 0.0f : loss;
  }
}

// One block, after logit_total.
inline void logit_loss(const LogitLoss& parameters) {
  double sum = 0;
  for_each_in_block(parameters.rows,
                    [&](int64_t row) { sum += static_cast<double>(parameters.losses[row]); });
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  const double total = parameters.is_mean ? static_cast<double>(*parameters.total) : 1.0;
  *parameters.loss = static_cast<float>(sum / total);
}

template <typename T>
inline void logit_gradients(const LogitPart& parameters) {
  float of_loss = *parameters.loss_gradient;
  if (parameters.is_mean) of_loss = of_loss / *parameters.total;
  const int64_t classes = parameters.classes, count = parameters.rows * classes;
  T* to = static_cast<T*>(parameters.gradients);
  for (int64_t i = first_element<int64_t>(); i < count; i += all_threads<int64_t>()) {
    const int64_t row = i / classes, column = i - row * classes;
    const int64_t target = parameters.targets[row];
    const bool counts = target != parameters.ignored;
    const float logit = scalar::load(logits_of_row<T>(parameters, row)[column]);
    const float y = logit - parameters.largest[row] - parameters.log_of_sum[row];
    const float sum = counts ? 0.0f - of_loss : 0.0f;
    const float own = counts && column == target - parameters.first_class ? -of_loss : 0.0f;
    to[i] = scalar::store<T>(own - scalar::math::exp(y) * sum);
  }
}

}  // namespace dc::runtime::kernel::cuda
