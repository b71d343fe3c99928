// KernelSource: CUDA C++ of one kernel, and what launching it takes.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/kernel/cuda/block.h"

namespace dc::runtime::kernel::cuda {

struct KernelSource {
  std::string name;   // of the kernel: extern "C", with one parameter, a struct
  std::string text;   // includes headers of runtime/kernel only
  int64_t count = 0;  // elements, each the work of one thread at a time
  unsigned threads = kBlockThreads, shared_bytes = 0;  // of a block; shared memory in its launch
};

}  // namespace dc::runtime::kernel::cuda
