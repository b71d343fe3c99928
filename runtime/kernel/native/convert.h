// Element types in memory and their conversion: runtime/kernel/scalar/elements.h.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime/kernel/scalar/elements.h"

namespace dc::runtime::kernel::native {

using scalar::BF16, scalar::Bool, scalar::F16;
using scalar::load, scalar::store, scalar::to_integer;
using scalar::narrow_bf16, scalar::narrow_f16, scalar::widen;

}  // namespace dc::runtime::kernel::native
