#include "src/layout/layout.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "src/base/units.h"
#include "src/layout/ejections.h"
#include "src/layout/occupancy.h"
#include "src/layout/problem.h"

namespace dc::layout {
namespace {

Occupancy occupancy_of(const Problem& problem) {
  std::vector<Span> spans;
  for (size_t i = 0; i < problem.size(); ++i) {
    if (problem.bytes[i] != 0) spans.push_back({problem.begin[i], problem.end[i]});
  }
  return {problem.moments, problem.bytes, spans};
}

using Order = std::vector<uint32_t>;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Places in the given order, each at the lowest free offset. Ends where the layout reaches `limit`
// bytes: it is then incomplete, and has at least so many. `occupancy`: of the problem, whatever is
// taken in it.
Layout place(const Problem& problem, const Order& order, Occupancy& occupancy,
             int64_t limit = kNoLimit) {
  occupancy.clear();
  Layout layout;
  layout.offsets.assign(problem.size(), 0);
  for (uint32_t i : order) {
    if (problem.bytes[i] == 0) continue;
    int64_t offset = occupancy.lowest_fit(problem.begin[i], problem.end[i], problem.bytes[i]);
    occupancy.take(problem.begin[i], problem.end[i], offset, problem.bytes[i]);
    layout.offsets[i] = offset;
    layout.bytes = std::max(layout.bytes, offset + problem.bytes[i]);
    if (layout.bytes >= limit) break;
  }
  return layout;
}

// Orders by decreasing key; ties by decreasing size, then by start, then by index.
template <typename Key>
Order order_by(const Problem& problem, Key key) {
  Order order(problem.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    auto key_a = key(a), key_b = key(b);
    if (key_a != key_b) return key_a > key_b;
    if (problem.bytes[a] != problem.bytes[b]) return problem.bytes[a] > problem.bytes[b];
    if (problem.first[a] != problem.first[b]) return problem.first[a] < problem.first[b];
    return a < b;
  });
  return order;
}

Order size_order(const Problem& problem) {
  return order_by(problem, [&](uint32_t i) { return problem.bytes[i]; });
}

// Halves the position in the order of every request that ends above `bound`.
Order promote(const Problem& problem, const Layout& layout, const Order& order, int64_t bound) {
  std::vector<std::pair<uint64_t, uint32_t>> keyed(order.size());
  for (size_t place = 0; place < order.size(); ++place) {
    uint32_t i = order[place];
    bool sticks_out = layout.offsets[i] + problem.bytes[i] > bound;
    keyed[place] = {sticks_out ? place : 2 * place + 1, i};
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Order result(order.size());
  for (size_t place = 0; place < order.size(); ++place) result[place] = keyed[place].second;
  return result;
}

// The best layout so far.
struct Best {
  Layout layout{};
  int64_t bytes = kNoLimit;  // that the next one must stay below
  int rounds = 0;            // of all that was placed

  void offer(const Layout& found) {
    ++rounds;
    if (found.bytes >= bytes) return;
    layout = found;
    layout.algorithm = "repaired greedy";
    bytes = found.bytes;
  }
  Layout found() && {
    layout.rounds = rounds;
    return std::move(layout);
  }
};

// `by_size`: the layout by decreasing size, if it is known.
void repair_all(const Problem& problem, int64_t bound, int rounds, int64_t enough,
                const Layout* by_size, Occupancy& occupancy, Best& best) {
  enough = std::max(enough, bound);
  Order orders[] = {
      size_order(problem),
      order_by(problem, [&](uint32_t i) { return -static_cast<int64_t>(problem.first[i]); }),
  };
  int left = rounds;
  for (size_t k = 0; k < std::size(orders) && left > 0; ++k) {
    const int share = std::max(1, left / static_cast<int>(std::size(orders) - k));
    left -= share;
    Layout current;
    for (int round = 1; round <= share; ++round) {
      if (round > 1) orders[k] = promote(problem, current, orders[k], bound);
      // No round follows the last one, so place() may stop when its layout is not smaller than the
      // best.
      const int64_t limit = round == share ? best.bytes : kNoLimit;
      current = round == 1 && k == 0 && by_size != nullptr
                    ? *by_size
                    : place(problem, orders[k], occupancy, limit);
      best.offer(current);
      if (best.bytes <= enough) return;
    }
  }
}

// Looks of Ejections that may be in vain.
constexpr int64_t kPatience = 800'000;
// Limits: the lower bound and one of so many parts of it; at last the bound.
constexpr int64_t kParts[] = {32, 64, 128, 256, 512, kNoLimit};
// Placing a request takes as long as so many looks.
constexpr int64_t kLookedInPlacing = 15;

int64_t end_of(const Problem& problem, const std::vector<int64_t>& offsets) {
  int64_t end = 0;
  for (size_t i = 0; i < problem.size(); ++i) end = std::max(end, offsets[i] + problem.bytes[i]);
  return end;
}

// Brings the best to ever lower limits, as long as it can and that is not enough. What is enough is
// a limit too, behind those that do not depend on it: so what is found there is found where it, or
// more, is enough.
void eject_from(const Problem& problem, int64_t bound, int64_t enough, Best& best) {
  if (0 < enough && enough < bound) return;
  Ejections ejections(problem);
  const std::vector<int64_t> start = best.layout.offsets;
  const auto bring_below = [&](int64_t limit) {
    std::vector<int64_t> offsets = start;
    limit = limit / base::kAlignment * base::kAlignment;
    if (!ejections.bring_below(limit, kPatience, offsets)) return false;
    best.bytes = end_of(problem, offsets);
    best.layout = {std::move(offsets), best.bytes, std::string(kEjections)};
    return true;
  };
  const bool is_above = enough > bound + bound / kParts[0];
  if (!is_above || !bring_below(enough)) {
    for (const int64_t part : kParts) {
      const int64_t limit = bound + bound / part;
      if (limit < best.bytes && !bring_below(limit)) break;
      if (best.bytes <= enough) break;
    }
    if (enough > 0 && !is_above && best.bytes > enough) bring_below(enough);
  }
  best.rounds += static_cast<int>(ejections.looked() /
                                  (kLookedInPlacing * static_cast<int64_t>(problem.size())));
}

}  // namespace

int64_t lower_bound(std::span<const Request> requests) { return Problem(requests).peak(); }

Layout greedy_by_size(std::span<const Request> requests) {
  const Problem problem(requests);
  Occupancy occupancy = occupancy_of(problem);
  Layout layout = place(problem, size_order(problem), occupancy);
  layout.algorithm = "greedy by size";
  layout.rounds = 1;
  return layout;
}

Layout repaired_greedy(std::span<const Request> requests, int rounds, int64_t enough) {
  const Problem problem(requests);
  Best best;
  Occupancy occupancy = occupancy_of(problem);
  repair_all(problem, problem.peak(), rounds, enough, nullptr, occupancy, best);
  return std::move(best).found();
}

Layout best_layout(std::span<const Request> requests, int64_t enough) {
  const Problem problem(requests);
  const int64_t bound = problem.peak();
  Occupancy occupancy = occupancy_of(problem);
  const Layout by_size = place(problem, size_order(problem), occupancy);
  Best best{by_size, by_size.bytes, 1};
  best.layout.algorithm = "greedy by size";
  if (by_size.bytes <= std::max(enough, bound)) return std::move(best).found();
  int rounds = static_cast<int>(std::clamp<size_t>(120000 / (requests.size() + 1), 6, 40));
  repair_all(problem, bound, rounds, enough, &by_size, occupancy, best);
  if (best.bytes > std::max(enough, bound)) eject_from(problem, bound, enough, best);
  return std::move(best).found();
}

}  // namespace dc::layout
