// The shape of blocks, for kernels and those who launch them.
#pragma once

namespace dc::runtime::kernel::cuda {

inline constexpr unsigned kBlockThreads = 256;

}  // namespace dc::runtime::kernel::cuda
