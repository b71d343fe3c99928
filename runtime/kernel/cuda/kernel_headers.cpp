#include "runtime/kernel/cuda/kernel_headers.h"

namespace dc::runtime::kernel::cuda {
namespace {

constexpr KernelHeader kHeaders[] = {
#include "runtime/kernel/cuda/kernel_headers.inc"
};

}  // namespace

std::span<const KernelHeader> kernel_headers() { return kHeaders; }

}  // namespace dc::runtime::kernel::cuda
