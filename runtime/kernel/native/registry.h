// The native kernels by name. Each file of this folder holds one idea and says here which kernels
// it has.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "runtime/kernel/native/call.h"

namespace dc::runtime::kernel::native {

using Made = base::Result<std::unique_ptr<Kernel>>;
using Factory = Made (*)(Call& call);
struct Row {
  std::string_view op;  // "dc.adamw"
  Factory factory;
};

std::span<const Row> cast_kernels();
std::span<const Row> dropout_kernels();
std::span<const Row> elementwise_kernels();
std::span<const Row> reduce_kernels();
std::span<const Row> update_kernels();

}  // namespace dc::runtime::kernel::native
