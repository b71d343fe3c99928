// What softmax, log_softmax and cross_entropy do with one row. They share it, so that they give the
// same bits.
#pragma once

#include "runtime/kernel/native/math.h"
#include "runtime/kernel/native/norms/rows.h"
#include "runtime/kernel/native/reductions/fold.h"

namespace dc::runtime::kernel::native {

template <typename T>
DC_VECTOR_CLONES void exp_of_difference(T* out, const T* x, T shift, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = math::exp(x[i] - shift);
}
// The same of kFoldLanes to kBlock elements, and their sum in the order of fold.h.
template <typename T>
DC_VECTOR_CLONES T sum_of_exp(T* out, const T* x, T shift, int64_t n) {
  T lanes[kFoldLanes] = {};
  const int64_t full = n - n % kFoldLanes;
  for (int64_t i = 0; i < full; i += kFoldLanes) {
#pragma GCC ivdep
    for (int64_t k = 0; k < kFoldLanes; ++k) {
      const T power = math::exp(x[i + k] - shift);
      out[i + k] = power;
      lanes[k] = lanes[k] + power;
    }
  }
  for (int64_t i = full; i < n; ++i) {
    out[i] = math::exp(x[i] - shift);
    lanes[i - full] = lanes[i - full] + out[i];
  }
  return join_lanes<kFoldLanes, SumFold<T>>(lanes);
}
// `log_of_sum`: of the sum of exp(x - largest) over the row.
template <typename T>
DC_VECTOR_CLONES void log_softmax_of(T* __restrict out, const T* x, T largest, T log_of_sum,
                                     int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] - largest - log_of_sum;
}
// `g`: the gradient of the results y; `sum`: of g over the row.
template <typename T>
DC_VECTOR_CLONES void log_softmax_gradient(T* __restrict out, const T* g, const T* y, T sum,
                                           int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = g[i] - math::exp(y[i]) * sum;
}

template <typename T>
T largest_of(RowBlocks<T>& x, int64_t n) {
  T largest = MaxFold<T>::neutral();
  in_blocks(n, [&](int64_t first, int64_t count) {
    MaxFold<T>::join(largest, fold_chunk<MaxFold<T>, T>(x.read(first, count), count));
  });
  return largest;
}
// The sum of exp(x - largest) over a row, in the order of fold.h. place(first): where the block's
// powers may be put.
template <typename T, typename Place>
double sum_of_powers(RowBlocks<T>& x, int64_t n, T largest, Place&& place) {
  double sum = 0;
  in_blocks(n, [&](int64_t first, int64_t count) {
    T* powers = place(first);
    const T* from = x.read(first, count);
    if (count >= kFoldLanes) {
      sum += sum_of_exp(powers, from, largest, count);
    } else {
      exp_of_difference(powers, from, largest, count);
      sum += fold_chunk<SumFold<T>, T>(powers, count);
    }
  });
  return sum;
}

}  // namespace dc::runtime::kernel::native
