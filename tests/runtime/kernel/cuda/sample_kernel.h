// A small kernel for tests of what compiles kernels.
#pragma once

#include <string>

#include "runtime/kernel/cuda/kernel_source.h"

namespace dc::runtime::kernel::cuda {

// It writes the value.
inline KernelSource sample(const std::string& value) {
  return {"sample",
          "#include \"runtime/kernel/cuda/kernel_words.h\"\n"
          "struct Sample { int* to; };\n"
          "DC_KERNEL(sample, Sample) { *parameters.to = " +
              value + "; }\n",
          1};
}

}  // namespace dc::runtime::kernel::cuda
