// What the waits of a program wait for.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/plan.h"

namespace dc::runtime::plan {

// By instruction. For a wait: the last kernel, collective or copy before the awaited signal, on
// the signal's stream. -1 for a wait without one in this program, and for every other instruction.
// Ids must be those of `plan` (level 1).
std::vector<int32_t> awaited(const Plan& plan, const Program& program);

}  // namespace dc::runtime::plan
