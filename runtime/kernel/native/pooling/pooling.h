// Largest elements and averages of windows, sliding or adaptive, and their gradients.
#pragma once

#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::native {

std::span<const Row> pooling_kernels();

}  // namespace dc::runtime::kernel::native
