// exp, log, log1p, tanh, erf, sin and cos of floats, as vector code: runtime/kernel/scalar/math.h.
#pragma once

#include "runtime/kernel/scalar/math.h"

namespace dc::runtime::kernel::native {

namespace math = scalar::math;

}  // namespace dc::runtime::kernel::native
