// Batch norm in its overloads, and its gradients.
#pragma once

#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::native {

std::span<const Row> batch_norm_kernels();

}  // namespace dc::runtime::kernel::native
