// Sums of contributions in rank order, in f32. The one place where every communicator adds numbers,
// so that all of them give the same bits.
#pragma once

#include <cstdint>
#include <span>

#include "src/base/dtype.h"

namespace dc::runtime::comm {

bool can_sum(base::DType dtype);  // f32, bf16, f16

// output[i] = ((f32(inputs[0][i]) + f32(inputs[1][i])) + ...), rounded to f32 after each addition;
// one input is only converted. `output` may be one of the inputs if dtype is f32.
void sum_in_rank_order(std::span<const void* const> inputs, base::DType dtype, int64_t elements,
                       float* output);

}  // namespace dc::runtime::comm
