// Which operators device `cuda` has kernels of.
#pragma once

#include <string_view>

namespace dc::runtime::kernel::cuda {

// By name: "aten.mm.default", "dc.adamw", "dc.fused". A kernel may still refuse its tensors. All
// of src/ir/native_ops.def, as a test says.
bool has_kernel(std::string_view op);

}  // namespace dc::runtime::kernel::cuda
