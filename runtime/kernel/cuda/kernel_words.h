// What kernels are written with, compiled by NVRTC with every function for the device.
//
//   DC_KERNEL(name, Parameters) { ... parameters.x ... }
//
// is a kernel with one parameter, a struct by value. Everything else is CUDA's.
#pragma once

#include "runtime/kernel/cuda/block.h"

#ifndef DC_KERNEL
#define DC_KERNEL(name, Parameters)                                                        \
  extern "C" __global__ void __launch_bounds__(::dc::runtime::kernel::cuda::kBlockThreads) \
      name(const __grid_constant__ Parameters parameters)
#endif
// The same for blocks of so many threads, of which a multiprocessor shall have room for `blocks`.
#ifndef DC_KERNEL_OF
#define DC_KERNEL_OF(name, Parameters, threads, blocks)             \
  extern "C" __global__ void __launch_bounds__((threads), (blocks)) \
      name(const __grid_constant__ Parameters parameters)
#endif

namespace dc::runtime::kernel::cuda {

// The elements of a thread: the first, and how far it is from one to the next.
template <typename Index>
inline Index first_element() {
  return static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
}
template <typename Index>
inline Index all_threads() {
  return static_cast<Index>(gridDim.x) * blockDim.x;
}

// Neighbouring elements that are read or written at once, in accesses of up to 16 bytes.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Pack {
  T at[kCount];
};
template <int kCount, typename T>
inline Pack<T, kCount> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, kCount>*>(from);
}
// Zeros, and nothing is read, unless the elements exist.
template <int kCount, typename T>
inline Pack<T, kCount> load_pack_if(bool exist, const T* from) {
  return exist ? load_pack<kCount>(from) : Pack<T, kCount>{};
}
template <typename T, int kCount>
inline void store_pack(T* to, const Pack<T, kCount>& pack) {
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

}  // namespace dc::runtime::kernel::cuda
