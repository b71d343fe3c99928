// softmax and log_softmax of rows, and their gradients. A block takes a row, which it reads three
// times; sums are made in f64.
#pragma once

#include "runtime/kernel/cuda/kernels/blocks.h"
#include "runtime/kernel/cuda/kernels/numbers.h"
#include "runtime/kernel/scalar/math.h"

namespace dc::runtime::kernel::cuda {

template <typename X, typename Y>
inline void softmax(const Softmax& parameters) {
  using C = Computed<X>;
  namespace math = scalar::math;
  const int64_t n = parameters.rows.length, from_step = parameters.rows.strides[0],
                to_step = parameters.rows.strides[1];
  for (int64_t row = blockIdx.x; row < parameters.rows.rows.count; row += gridDim.x) {
    const Places<2> at = places_of(parameters.rows.rows, row);
    const X* x = static_cast<const X*>(parameters.x) + at.at[0];
    Y* y = static_cast<Y*>(parameters.y) + at.at[1];
    C largest = minus_infinity<C>();
    for_each_in_block(
        n, [&](int64_t i) { largest = larger(largest, scalar::load(x[i * from_step])); });
    largest = block_largest(largest);
    double sum = 0;
    for_each_in_block(n, [&](int64_t i) {
      sum += static_cast<double>(math::exp(scalar::load(x[i * from_step]) - largest));
    });
    sum = block_sum(sum);
    const C log_of_sum = static_cast<C>(scalar::log(sum)), factor = static_cast<C>(1.0 / sum);
    const bool is_masked = largest == minus_infinity<C>();
    for_each_in_block(n, [&](int64_t i) {
      const C own = scalar::load(x[i * from_step]);
      C result = 0;
      if (parameters.kind == SoftmaxKind::Logarithm) {
        result = own - largest - log_of_sum;
      } else if (parameters.kind == SoftmaxKind::Plain || !is_masked) {
        result = math::exp(own - largest) * factor;
      }
      y[i * to_step] = scalar::store<Y>(result);
    });
  }
}

template <typename G, typename Y, typename To>
inline void softmax_gradients(const SoftmaxBackward& parameters) {
  using C = Computed<Y>;
  const RowWalk<3>& rows = parameters.rows;
  for (int64_t row = blockIdx.x; row < rows.rows.count; row += gridDim.x) {
    const Places<3> at = places_of(rows.rows, row);
    const G* g = static_cast<const G*>(parameters.g) + at.at[0];
    const Y* y = static_cast<const Y*>(parameters.y) + at.at[1];
    To* to = static_cast<To*>(parameters.to) + at.at[2];
    const auto of_g = [&](int64_t i) {
      return static_cast<C>(scalar::load(g[i * rows.strides[0]]));
    };
    const auto of_y = [&](int64_t i) { return scalar::load(y[i * rows.strides[1]]); };
    double own = 0;
    for_each_in_block(rows.length, [&](int64_t i) {
      own += static_cast<double>(parameters.is_logarithm ? of_g(i) : of_g(i) * of_y(i));
    });
    const C sum = static_cast<C>(block_sum(own));
    for_each_in_block(rows.length, [&](int64_t i) {
      const C result = parameters.is_logarithm ? of_g(i) - scalar::math::exp(of_y(i)) * sum
                                               : (of_g(i) - sum) * of_y(i);
      to[i * rows.strides[2]] = scalar::store<To>(result);
    });
  }
}

}  // namespace dc::runtime::kernel::cuda
