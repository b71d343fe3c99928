// with_ends() next to the best of all orders of small drafts.
#include "src/fusion/bounds.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/src/fusion/random_problem.h"

namespace dc::fusion {
namespace {

using base::Nanos;

const ClosedFormTime kFused({40}, 1'000'000'000);  // a byte takes 1 ns
constexpr LinearTime kLine{3.0, 200};

// The shortest of all orders of groups and buckets.
class BestOrder {
 public:
  explicit BestOrder(const Draft& draft) : draft_(draft), end_(draft.groups().size()) {
    for (size_t i = 0; i < draft.groups().size(); ++i) {
      if (draft.groups()[i] != nullptr) left_.push_back(static_cast<int32_t>(i));
    }
  }

  Nanos run() {
    place_next({});
    return best_;
  }

 private:
  bool is_ready(int32_t group) const {
    return std::ranges::none_of(left_, [&](int32_t before) {
      bool comes_before = false;
      draft_.each_successor(before, [&](int32_t to) { comes_before |= to == group; });
      return comes_before;
    });
  }

  void place_next(Nanos now) {
    if (left_.empty()) return carry(now);
    for (size_t i = 0; i < left_.size(); ++i) {
      const int32_t group = left_[i];
      if (!is_ready(group)) continue;
      left_.erase(left_.begin() + static_cast<std::ptrdiff_t>(i));
      const Nanos end = now + draft_.groups()[static_cast<size_t>(group)]->time;
      end_[static_cast<size_t>(group)] = end;
      place_next(end);
      left_.insert(left_.begin() + static_cast<std::ptrdiff_t>(i), group);
    }
  }

  void carry(Nanos compute) {
    const std::vector<Reduction>& reductions = draft_.problem().reductions;
    std::vector<Nanos> ready(reductions.size());
    std::vector<base::Bytes> bytes(reductions.size());
    for (size_t i = 0; i < reductions.size(); ++i) {
      const auto bucket = static_cast<size_t>(draft_.bucket(static_cast<int32_t>(i)));
      for (const int32_t kernel : reductions[i].after)
        ready[bucket] = std::max(ready[bucket], end_[static_cast<size_t>(draft_.owner(kernel))]);
      bytes[bucket] += reductions[i].bytes;
    }
    std::vector<size_t> order;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i].v > 0) order.push_back(i);
    }
    do {
      Nanos free;
      for (const size_t bucket : order)
        free = std::max(free, ready[bucket]) + kLine.time(bytes[bucket]);
      best_ = std::min(best_, std::max(compute, free));
    } while (std::next_permutation(order.begin(), order.end()));
  }

  const Draft& draft_;
  std::vector<int32_t> left_;
  std::vector<Nanos> end_;
  Nanos best_{INT64_MAX};
};

TEST(Bounds, NoOrderIsFasterThanWithEnds) {
  int reached = 0, above_full_overlap = 0;
  constexpr int kCases = 300;
  for (uint32_t seed = 0; seed < kCases; ++seed) {
    const Problem problem = random_problem(seed, {.kernels = 6, .reductions = 3, .orders = true});
    Draft draft(problem, kFused);
    std::mt19937 random(seed);
    const auto pick = [&](int32_t count) { return static_cast<int32_t>(random()) & (count - 1); };
    for (int i = 0; i < 6; ++i) draft.fuse(pick(8) % 6, pick(8) % 6, random() % 3 == 0);
    if (seed % 2 == 0) draft.merge(0, 1 + pick(2));
    const Nanos bound = with_ends(draft, kLine), best = BestOrder(draft).run();
    ASSERT_LE(bound, best) << seed;
    const Timeline played = play(draft, kLine, Order::FirstReady);
    ASSERT_GE(bound, played.full_overlap()) << seed;
    reached += bound == best ? 1 : 0;
    above_full_overlap += bound > played.full_overlap() ? 1 : 0;
  }
  EXPECT_GT(reached, kCases * 8 / 10);
  EXPECT_GT(above_full_overlap, kCases / 2);
}

}  // namespace
}  // namespace dc::fusion
