// dc.linear_cross_entropy: the output layer of a model and its loss, forward and backward.
#pragma once

#include <span>

#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::onednn {

std::span<const native::Row> linear_cross_entropy_kernels();

}  // namespace dc::runtime::kernel::onednn
