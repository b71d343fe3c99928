#include "src/driver/least_budget.h"

#include <algorithm>

namespace dc::driver {

std::optional<int64_t> least_budget(int64_t refused, int64_t need, const Compiles& compiles) {
  int64_t low = refused, high = std::max(need, refused + 1);
  const int64_t most = high * 8;
  for (int64_t more = high / kLeastBudgetParts + 1; !compiles(high); more *= 2) {
    low = high;
    high += more;
    if (high > most) return std::nullopt;
  }
  const auto enough = [&] { return high - low <= std::max<int64_t>(1, high / kLeastBudgetParts); };
  for (int64_t less = high / kLeastBudgetParts; !enough() && less > 0; less *= 2) {
    const int64_t next = high - less;
    if (next <= low) break;
    if (!compiles(next)) {
      low = next;
      break;
    }
    high = next;
  }
  while (!enough()) {
    const int64_t middle = low + (high - low) / 2;
    (compiles(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace dc::driver
