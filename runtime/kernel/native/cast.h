// Elements in another type: exact where that type is wider, else to nearest even.
#pragma once

#include <cstdint>

#include "src/base/dtype.h"

namespace dc::runtime::kernel::native {

// Of contiguous elements; `to` and `from` must not overlap.
using Convert = void (*)(void* to, const void* from, int64_t count);
Convert converter(base::DType to, base::DType from);

}  // namespace dc::runtime::kernel::native
