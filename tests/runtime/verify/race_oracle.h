// Whether a plan has a race, by brute force: every pair of instructions of two steps, every rank,
// every pair of byte ranges. Shares nothing with the verifier: what a kernel touches is read off
// its arguments and the compiler's table of operators, never off the plan's lists.
#pragma once

#include "runtime/plan/plan.h"

namespace dc::runtime::plan::test {

// For small plans: at most 1024 instructions in two steps.
bool has_race(const Plan& plan);

}  // namespace dc::runtime::plan::test
