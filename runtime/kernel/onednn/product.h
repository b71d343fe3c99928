// mm, bmm, addmm, baddbmm, dc.add_product and dc.two_products as matmul primitives of oneDNN.
#pragma once

#include <span>

#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::onednn {

std::span<const native::Row> product_kernels();

}  // namespace dc::runtime::kernel::onednn
