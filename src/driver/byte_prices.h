// What a byte of memory is worth at each instant of a step, by the bound over choices, as remarks.
#pragma once

#include <vector>

#include "src/base/remark.h"
#include "src/bound/bound.h"
#include "src/ir/step.h"

namespace dc::driver {

// "time-weights", then a "byte-price" without text for each instant that has a price
// (src/base/remark_codes.h). Adds nothing if the kernels that the bound looked at are not in the
// step, in the bound's order. `step`: allocated; a plan's instructions are numbered as for it.
void add_byte_prices(const ir::Step& step, const bound::LowerBound& bound,
                     std::vector<base::Remark>& remarks);

}  // namespace dc::driver
