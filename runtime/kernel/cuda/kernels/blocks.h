// What the threads of a block find together. Every order is that of a tree over halves.
#pragma once

#include "runtime/kernel/cuda/kernel_words.h"
#include "runtime/kernel/cuda/kernels/warp.h"
#include "runtime/kernel/scalar/language.h"

namespace dc::runtime::kernel::cuda {

// join(a, b) of what all threads have; every thread gets the result.
template <typename T, typename Join>
inline T block_join(T own, Join join) {
  __shared__ T values[kBlockThreads];
  const unsigned thread = threadIdx.x;
  values[thread] = own;
  __syncthreads();
  if constexpr (scalar::kFloating<T>) {  // one warp has all of it between two barriers
    static_assert(kBlockThreads == 256);
    if (thread < 32) {
      const auto pair = [&](unsigned i) { return join(values[i], values[i + 128]); };
      T all =
          join(join(pair(thread), pair(thread + 64)), join(pair(thread + 32), pair(thread + 96)));
      for (unsigned half = 16; half > 0; half /= 2) all = join(all, exchange(all, half));
      if (thread == 0) values[0] = all;
    }
    __syncthreads();
  } else {
    for (unsigned half = kBlockThreads / 2; half > 0; half /= 2) {
      if (thread < half) values[thread] = join(values[thread], values[thread + half]);
      __syncthreads();
    }
  }
  const T all = values[0];
  __syncthreads();
  return all;
}

inline double block_sum(double own) {
  return block_join(own, [](double a, double b) { return a + b; });
}

// NaN is larger than every number.
template <typename T>
inline T larger(T a, T b) {
  return b > a || b != b ? b : a;
}
template <typename T>
inline T block_largest(T own) {
  return block_join(own, [](T a, T b) { return larger(a, b); });
}

template <typename T>
inline T minus_infinity() {
  return -static_cast<T>(scalar::numeric_limits<float>::infinity());
}

// f(i) for the thread's elements of [0, count): neighbours in neighbouring threads.
template <typename F>
inline void for_each_in_block(scalar::int64_t count, F f) {
  for (scalar::int64_t i = threadIdx.x; i < count; i += kBlockThreads) f(i);
}

}  // namespace dc::runtime::kernel::cuda
