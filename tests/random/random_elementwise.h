// Random graphs of element-wise operators: every one that a fused kernel can run, element types,
// broadcast and strided operands, views of what they make, and what reads several of them.
#pragma once

#include <cstdint>

#include "src/ir/step.h"

namespace dc::test {

// Normalized, for one rank, with a forward and a backward phase. Each node's module is a number of
// its own, so that its instruction is found again in a plan. All that nothing else reads is summed
// into the loss or the gradient of the parameter.
ir::Step random_elementwise_step(uint32_t seed);

}  // namespace dc::test
