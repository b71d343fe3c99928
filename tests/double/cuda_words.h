// What a kernel that the double of NVRTC has compiled asks the double of the GPU for.
#pragma once

// One dimension of blocks and threads.
struct GpuPlace {
  unsigned thread[1], block[1], block_size[1], grid_size[1];
};
extern "C" const GpuPlace* gpu_double_place();  // of the thread of a block whose turn it is
extern "C" void gpu_double_barrier();           // of all threads of the block
