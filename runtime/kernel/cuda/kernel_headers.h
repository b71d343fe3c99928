// The headers that kernels include, as text: what NVRTC compiles needs no file of ours.
#pragma once

#include <span>

namespace dc::runtime::kernel::cuda {

struct KernelHeader {
  const char* name;  // "runtime/kernel/scalar/math.h"
  const char* text;
};
std::span<const KernelHeader> kernel_headers();

}  // namespace dc::runtime::kernel::cuda
