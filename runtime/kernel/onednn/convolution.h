// convolution and convolution_backward as primitives of oneDNN.
#pragma once

#include <span>

#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::onednn {

std::span<const native::Row> convolution_kernels();

}  // namespace dc::runtime::kernel::onednn
