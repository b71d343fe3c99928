// The names of element types in the text of kernels.
#pragma once

#include "src/base/dtype.h"

namespace dc::runtime::kernel::cuda {

// As namespaces below dc::runtime::kernel see it: "scalar::BF16".
const char* element_type(base::DType dtype);

}  // namespace dc::runtime::kernel::cuda
