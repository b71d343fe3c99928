// The least memory budget that works, for an error that says what to give.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace dc::driver {

// True if the step compiles with that budget, in bytes.
using Compiles = std::function<bool(int64_t budget)>;

// A budget that compiles, such that a budget smaller by at most one part in kLeastBudgetParts does
// not. Both have been tried, because heuristic searches are not quite monotone. `refused`: a
// budget that does not compile. `need`: a first guess, the bytes of the best plan made under
// `refused`. Gallops up, then down, then bisects: two tries if the guess is right. Empty if no
// budget up to eight times the guess compiles.
std::optional<int64_t> least_budget(int64_t refused, int64_t need, const Compiles& compiles);
inline constexpr int64_t kLeastBudgetParts = 64;

}  // namespace dc::driver
