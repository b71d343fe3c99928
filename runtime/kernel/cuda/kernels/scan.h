// Cumulative sums, and places of extremes. A block takes a row, or the elements of a result.
#pragma once

#include "runtime/kernel/cuda/kernels/reduce.h"
#include "runtime/kernel/cuda/kernels/scan_parameters.h"

namespace dc::runtime::kernel::cuda {

// What the threads before this one and it have together, in an order of sums that depends on the
// thread alone (W. D. Hillis and G. L. Steele, 1986); `all`: of the block.
template <typename A>
inline A block_scan(A own, A* all) {
  __shared__ A sums[kBlockThreads];
  const unsigned thread = threadIdx.x;
  sums[thread] = own;
  __syncthreads();
  for (unsigned distance = 1; distance < kBlockThreads; distance *= 2) {
    const A before = thread >= distance ? sums[thread - distance] : A{0};
    __syncthreads();
    own = before + own;
    sums[thread] = own;
    __syncthreads();
  }
  *all = sums[kBlockThreads - 1];
  __syncthreads();
  return own;
}

// Summed in what kernels/reduce.h folds in.
template <typename From, typename To>
inline void cumulative_sums(const CumulativeSum& parameters) {
  using A = Total<From, To>;
  const RowWalk<2>& rows = parameters.rows;
  for (int64_t row = blockIdx.x; row < rows.rows.count; row += gridDim.x) {
    const Places<2> at = places_of(rows.rows, row);
    const From* from = static_cast<const From*>(parameters.from) + at.at[0];
    To* to = static_cast<To*>(parameters.to) + at.at[1];
    A before = 0;
    for (int64_t first = 0; first < rows.length; first += kBlockThreads) {
      const int64_t i = first + threadIdx.x;
      const A own =
          i < rows.length ? scalar::store<A>(scalar::load(from[i * rows.strides[0]])) : A{0};
      A all = 0;
      const A sum = before + block_scan(own, &all);
      if (i < rows.length) to[i * rows.strides[1]] = scalar::store<To>(sum);
      before += all;
    }
  }
}

template <typename C>
struct Candidate {
  C value;
  int64_t number;  // negative: none
};

// The first NaN, else the largest or smallest element, the first of equals.
template <bool kLargest, typename C>
inline Candidate<C> better(const Candidate<C>& a, const Candidate<C>& b) {
  if (a.number < 0 || b.number < 0) return a.number < 0 ? b : a;
  const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
  const bool is_equal = (a_is_nan && b_is_nan) || a.value == b.value;
  if (is_equal) return a.number < b.number ? a : b;
  if (a_is_nan || b_is_nan) return a_is_nan ? a : b;
  return (kLargest ? a.value > b.value : a.value < b.value) ? a : b;
}

template <typename T, bool kLargest>
inline void extremes(const Extreme& parameters) {
  using C = Computed<T>;
  const auto join = [](const Candidate<C>& a, const Candidate<C>& b) {
    return better<kLargest>(a, b);
  };
  for (int64_t i = blockIdx.x; i < parameters.kept.count; i += gridDim.x) {
    const Places<3> at = places_of(parameters.kept, i);
    const T* from = static_cast<const T*>(parameters.from) + at.at[0];
    Candidate<C> best{C{}, -1};
    for_each_in_block(parameters.folded.count, [&](int64_t number) {
      const C value = scalar::load(from[places_of(parameters.folded, number).at[0]]);
      best = join(best, {value, number});
    });
    best = block_join(best, join);
    if (threadIdx.x != 0) continue;
    if (parameters.values != nullptr)
      static_cast<T*>(parameters.values)[at.at[1]] = scalar::store<T>(best.value);
    parameters.indices[at.at[2]] = best.number;
  }
}

}  // namespace dc::runtime::kernel::cuda
