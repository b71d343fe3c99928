// What kernels that the double of NVRTC compiles see in place of CUDA's words. It is C++ for the
// host; nothing about GPUs follows from it.
#pragma once

#include <cstddef>

// One dimension of blocks and threads.
struct GpuPlace {
  unsigned thread[1], block[1], block_size[1], grid_size[1];
};
extern "C" const GpuPlace* gpu_double_place();  // of the thread of a block whose turn it is
extern "C" void gpu_double_barrier();           // of all threads of the block

#ifdef DC_DOUBLE_HAS_BARRIERS  // a module of kernels

extern "C" {
extern const bool gpu_double_has_barriers;
const bool gpu_double_has_barriers = DC_DOUBLE_HAS_BARRIERS;
}

struct GpuIndex {
  unsigned x;
};
#define threadIdx (GpuIndex{gpu_double_place()->thread[0]})
#define blockIdx (GpuIndex{gpu_double_place()->block[0]})
#define blockDim (GpuIndex{gpu_double_place()->block_size[0]})
#define gridDim (GpuIndex{gpu_double_place()->grid_size[0]})

// The threads of a block run on one thread of the host.
#define __shared__ static thread_local
inline void __syncthreads() { gpu_double_barrier(); }

// Reads its parameter where the double has put it.
#define DC_KERNEL(name, Parameters)                             \
  static void name##_thread(const Parameters& parameters);      \
  extern "C" {                                                  \
  extern const size_t name##_bytes;                             \
  const size_t name##_bytes = sizeof(Parameters);               \
  void name(const void* parameters) {                           \
    name##_thread(*static_cast<const Parameters*>(parameters)); \
  }                                                             \
  }                                                             \
  static void name##_thread([[maybe_unused]] const Parameters& parameters)

#endif
