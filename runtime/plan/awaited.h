// What the waits of a program wait for.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/plan.h"

namespace dc::runtime::plan {

// By instruction: for a wait the last kernel, collective or copy that the signalling stream carries
// out before the signal; -1 for every other instruction, and for a wait that nothing in this
// program precedes. Ids must be those of `plan` (level 1).
std::vector<int32_t> awaited(const Plan& plan, const Program& program);

}  // namespace dc::runtime::plan
