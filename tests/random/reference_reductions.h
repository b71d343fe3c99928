// What a reduction over leading or trailing dims of a row-major tensor gives, in the order that
// runtime/kernel/native/reductions/fold.h says: one plain loop after the other.
#pragma once

#include <string_view>

#include "tests/random/reference_interpreter.h"

namespace dc::test {

// Whether it is sum, mean, amax or amin over dims.
bool is_reduction_of_dims(std::string_view op);

// `dims`: ascending, the first or the last ones of the operand; none: all.
Elements interpret_reduction(std::string_view op, const Elements& operand,
                             const std::vector<int64_t>& dims, base::DType dtype,
                             const std::vector<int64_t>& sizes);

}  // namespace dc::test
