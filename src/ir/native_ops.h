// Which overloads of ATen the native provider has kernels for, and of which tensors. The table is
// native_ops.def; the kernels are in runtime/kernel/native. A test compares the two.
#pragma once

#include <span>
#include <string_view>

#include "src/base/kernel_signature.h"

namespace dc::ir {

// Whether there is a native kernel for the operator, the tensors and the attributes of this
// signature, of any provider. False for the project's own operators, which have no other kernels.
bool has_native_kernel(const base::KernelSignature& kernel);
// Whether a fused kernel can do what the operator's native kernel does.
bool is_elementwise(std::string_view overload);

struct NativeOp {
  std::string_view overload;  // "aten.mm.default"
  bool (*takes)(const base::KernelTensors& tensors);
  bool is_elementwise;
};
std::span<const NativeOp> native_ops();  // in the table's order

}  // namespace dc::ir
