// Sums over some dims, in f64, in an order that depends on no GPU.
#pragma once

#include "runtime/kernel/cuda/kernels/sums.h"

namespace dc::runtime::kernel::cuda {

struct ReducePlaces {
  int64_t from, to;
};
inline ReducePlaces places_of(const ReduceDim* dims, int64_t count, int64_t index) {
  ReducePlaces at{0, 0};
  for (int64_t d = count; d-- > 0;) {
    const int64_t own = index % dims[d].size;
    index /= dims[d].size;
    at.from += own * dims[d].from;
    at.to += own * dims[d].to;
  }
  return at;
}

template <typename From>
inline double reduced_element(const Reduce& parameters, int64_t begin, int64_t term) {
  const int64_t place = places_of(parameters.summed, parameters.summed_dims, term).from;
  const From* from = static_cast<const From*>(parameters.from);
  return static_cast<double>(scalar::load(from[begin + place]));
}
template <typename To>
inline void put_reduced(const Reduce& parameters, int64_t place, double sum) {
  static_cast<To*>(parameters.to)[place] = scalar::store<To>(sum / parameters.divisor);
}

// A block makes a result: thread t adds the terms t, t + kBlockThreads ... in order; the threads
// are added as a tree over halves.
template <typename From, typename To>
inline void reduce_by_blocks(const Reduce& parameters) {
  for (int64_t i = blockIdx.x; i < parameters.results; i += gridDim.x) {
    const ReducePlaces at = places_of(parameters.kept, parameters.kept_dims, i);
    double sum = 0;
    for (int64_t term = threadIdx.x; term < parameters.terms; term += kBlockThreads)
      sum += reduced_element<From>(parameters, at.from, term);
    sum = block_sum(sum);
    if (threadIdx.x == 0) put_reduced<To>(parameters, at.to, sum);
  }
}

// A thread makes a result, from its terms in order: where the elements of neighbouring results are
// neighbours.
template <typename From, typename To>
inline void reduce_by_threads(const Reduce& parameters) {
  for (int64_t i = first_element<int64_t>(); i < parameters.results; i += all_threads<int64_t>()) {
    const ReducePlaces at = places_of(parameters.kept, parameters.kept_dims, i);
    double sum = 0;
    for (int64_t term = 0; term < parameters.terms; ++term)
      sum += reduced_element<From>(parameters, at.from, term);
    put_reduced<To>(parameters, at.to, sum);
  }
}

}  // namespace dc::runtime::kernel::cuda
