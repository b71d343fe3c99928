#include "src/search/smallest_plan.h"

#include <algorithm>

namespace dc::search {
namespace {

class SmallestPlanSearch {
 public:
  explicit SmallestPlanSearch(const ArenaFor& arena_for) : arena_for_(arena_for) {}

  std::optional<SmallestPlan> run() {
    try_planned(base::Bytes{1});
    try_planned({});
    if (!best_) return best_;
    int64_t low = 0, high = best_->bytes;
    const auto enough = [&] {
      return high - low <= std::max<int64_t>(1, high / kSmallestPlanParts);
    };
    const auto narrow = [&](int64_t planned) {
      const bool keeps = try_planned(base::Bytes{planned});
      (keeps ? high : low) = planned;
      return keeps;
    };
    for (int64_t less = high / kSmallestPlanParts; less > 0 && high - less > low; less *= 2) {
      if (!narrow(high - less)) break;
    }
    while (!enough()) narrow(low + (high - low) / 2);
    return best_;
  }

 private:
  // Whether the arena keeps to what was planned for.
  bool try_planned(const PlannedMemory& planned) {
    const std::optional<int64_t> bytes = arena_for_(planned);
    if (!bytes) return false;
    // Of equals, the one without a limit: its passes give up least.
    const bool wins = !best_ || *bytes < best_->bytes || (*bytes == best_->bytes && !planned);
    if (wins) best_ = {planned, *bytes};
    return planned && *bytes <= planned->v;
  }

  const ArenaFor& arena_for_;
  std::optional<SmallestPlan> best_;
};

}  // namespace

std::optional<SmallestPlan> smallest_plan(const ArenaFor& arena_for) {
  return SmallestPlanSearch(arena_for).run();
}

}  // namespace dc::search
