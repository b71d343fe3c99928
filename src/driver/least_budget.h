// The least memory budget that works, for an error that says what to give.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace dc::driver {

// True if the step compiles with that budget, in bytes.
using Compiles = std::function<bool(int64_t budget)>;

// A budget that works such that one smaller by at most a part in kLeastBudgetParts does not.
// `refused`: a budget that does not work; `need`: bytes of the best plan made under it, a first
// guess. What works is not quite monotone, because searches are heuristics; so both budgets are
// tried. Galloping up, then down, then bisection: two tries if the guess is right. Empty: nothing
// up to eight times the guess works.
std::optional<int64_t> least_budget(int64_t refused, int64_t need, const Compiles& compiles);
inline constexpr int64_t kLeastBudgetParts = 64;

}  // namespace dc::driver
