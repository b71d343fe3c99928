// The smallest plan that is found for a step: what a budget must at least be, and a plan for it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "src/base/units.h"

namespace dc::search {

// Bytes of the device's memory that search and passes plan for; empty: no limit. The arena may take
// more, because addresses need more than the bytes that are live.
using PlannedMemory = std::optional<base::Bytes>;

// Bytes of the arena that is made when they plan for so much; empty if none is made. One that keeps
// neither to that nor to the least so far may be said to be smaller than it is, if that still
// holds.
using ArenaFor = std::function<std::optional<int64_t>(const PlannedMemory&)>;

struct SmallestPlan {
  PlannedMemory planned;
  int64_t bytes = 0;  // of the arena
};

// The smallest arena of those that it tries: with almost nothing, without a limit, then less than
// the best so far, galloping down and bisecting. An arena planned for a part in kSmallestPlanParts
// less did not keep to that. No budget is an argument, so that every budget gets one answer: each
// that is at least `bytes` has a plan. Empty if there is no arena with or without a limit.
std::optional<SmallestPlan> smallest_plan(const ArenaFor& arena_for);
inline constexpr int64_t kSmallestPlanParts = 64;

}  // namespace dc::search
