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
// Of the 32 threads of a warp: the last one calls `all` with what each has given, by lane.
extern "C" void gpu_double_together(void* own, void (*all)(void* const* lanes));
extern "C" void gpu_double_meet_group();  // of the 128 threads of four warps
// Of so many threads of the block, at one of 16 barriers; or the thread comes and goes on.
extern "C" void gpu_double_meet(int barrier, unsigned threads, bool waits);
// Copies into shared memory that are done when the thread waits for their group; from nowhere:
// zeros.
extern "C" void gpu_double_copy(void* to, const void* from, size_t bytes);
extern "C" void gpu_double_end_group();
extern "C" void gpu_double_wait(unsigned left);  // for all groups but so many

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
// So do its blocks, one after the other.
inline void __threadfence() {}
inline unsigned atomicAdd(unsigned* at, unsigned more) {
  const unsigned before = *at;
  *at += more;
  return before;
}

// As much as a GPU of compute capability 9.0 has for a block.
#define DC_SHARED_MEMORY(name) alignas(1024) static thread_local unsigned char name[227 << 10]

#define DC_KERNEL_OF(name, Parameters, threads, blocks) DC_KERNEL(name, Parameters)
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
