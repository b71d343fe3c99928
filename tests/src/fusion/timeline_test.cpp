#include "src/fusion/timeline.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "src/fusion/search.h"
#include "tests/src/fusion/random_problem.h"

namespace dc::fusion {
namespace {

using base::Nanos;

const ClosedFormTime kFused({40}, 1'000'000'000);  // a byte takes 1 ns

// The paper's simulator again, from the groups' members alone and as slowly as it is said.
struct Plain {
  explicit Plain(const Draft& draft) : draft(draft) {
    for (size_t i = 0; i < draft.groups().size(); ++i) {
      if (draft.groups()[i] != nullptr)
        waits[static_cast<int32_t>(i)] = before(static_cast<int32_t>(i));
    }
  }

  bool has(int32_t group, int32_t kernel) const {
    const std::vector<int32_t>& members = draft.groups()[static_cast<size_t>(group)]->members;
    return std::ranges::count(members, kernel) != 0;
  }

  std::set<int32_t> before(int32_t group) const {
    std::set<int32_t> found;
    const Problem& problem = draft.problem();
    for (const int32_t member : draft.groups()[static_cast<size_t>(group)]->members) {
      for (const int32_t read : problem.kernel(member).reads) {
        const int32_t maker = problem.value(read).maker;
        if (maker >= 0 && !has(group, maker)) found.insert(draft.owner(maker));
      }
      for (const int32_t earlier : problem.kernel(member).after) {
        for (size_t i = 0; i < draft.groups().size(); ++i) {
          const auto other = static_cast<int32_t>(i);
          if (draft.groups()[i] != nullptr && other != group && has(other, earlier))
            found.insert(other);
        }
      }
    }
    return found;
  }

  // First ready, first served.
  void run() {
    std::map<int32_t, int> turn;  // of a group that has ended: its place in the order
    Nanos now;
    while (turn.size() < waits.size()) {
      int32_t next = -1;
      std::pair<int, int32_t> least;
      for (const auto& [group, others] : waits) {
        if (turn.contains(group)) continue;
        int last = -1;
        bool ready = true;
        for (const int32_t other : others) {
          ready &= turn.contains(other);
          if (ready) last = std::max(last, turn.at(other));
        }
        if (!ready) continue;
        const std::pair<int, int32_t> key(last,
                                          draft.groups()[static_cast<size_t>(group)]->own.front());
        if (next < 0 || key < least) {
          next = group;
          least = key;
        }
      }
      ASSERT_GE(next, 0) << "the groups wait for each other";
      turn[next] = static_cast<int>(turn.size());
      now += draft.groups()[static_cast<size_t>(next)]->time;
      end[next] = now;
    }
    compute = now;
  }

  Nanos channel(const LinearTime& collective) const {
    std::map<int32_t, std::pair<Nanos, base::Bytes>> buckets;
    for (size_t i = 0; i < draft.problem().reductions.size(); ++i) {
      const Reduction& reduction = draft.problem().reductions[i];
      auto& [ready, bytes] = buckets[draft.bucket(static_cast<int32_t>(i))];
      for (const int32_t kernel : reduction.after)
        ready = std::max(ready, end.at(draft.owner(kernel)));
      bytes += reduction.bytes;
    }
    Nanos free;
    while (!buckets.empty()) {
      auto first = buckets.begin();
      for (auto at = buckets.begin(); at != buckets.end(); ++at) {
        if (at->second.first < first->second.first) first = at;
      }
      free = std::max(free, first->second.first) + collective.time(first->second.second);
      buckets.erase(first);
    }
    return free;
  }

  const Draft& draft;
  std::map<int32_t, std::set<int32_t>> waits;
  std::map<int32_t, Nanos> end;
  Nanos compute;
};

TEST(Timeline, IsThatOfAPlainOne) {
  const LinearTime collective{0.3, 700};
  int fused = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const Problem problem =
        random_problem(seed, {4 + static_cast<int>(seed % 30), 5, 2, seed % 3 == 0});
    Draft draft(problem, kFused);
    std::mt19937 random(seed);
    for (int i = 0; i < 100; ++i) {
      const auto pick = [&](size_t count) { return static_cast<int32_t>(random() % count); };
      if (i % 4 == 0) {
        draft.merge(pick(problem.reductions.size()), pick(problem.reductions.size()));
      } else {
        fused += draft.fuse(pick(problem.kernels.size()), pick(problem.kernels.size()), i % 2 == 0)
                     ? 1
                     : 0;
      }
    }
    Plain plain(draft);
    plain.run();
    const Timeline played = play(draft, collective, Order::FirstReady);
    EXPECT_EQ(played.compute, plain.compute) << seed;
    EXPECT_EQ(played.time, std::max(plain.compute, plain.channel(collective))) << seed;
    EXPECT_GE(played.time, played.full_overlap());
  }
  EXPECT_GT(fused, 200);
}

// a, b read from nothing; c reads from a. In program order c comes before b, as it became ready
// later it runs behind it.
TEST(Timeline, OrdersDiffer) {
  Problem problem;
  for (int32_t i = 0; i < 3; ++i) problem.values.push_back({i, i, 8, true});
  problem.kernels = {{{10}, -1, {}, {0}, {}}, {{20}, -1, {0}, {1}, {}}, {{40}, -1, {}, {2}, {}}};
  problem.reductions = {{{1}, {100}, 0}};
  problem.finish();
  const Draft draft(problem, kFused);
  Moments moments;
  EXPECT_EQ(play(draft, {1, 0}, Order::FirstReady, &moments).time.v, 170);
  EXPECT_EQ(moments.order, (std::vector<int32_t>{0, 2, 1}));
  EXPECT_EQ(moments.produced[0].v, 70);
  EXPECT_EQ(play(draft, {1, 0}, Order::Program, &moments).time.v, 130);
  EXPECT_EQ(moments.order, (std::vector<int32_t>{0, 1, 2}));
}

TEST(Timeline, BucketsWaitForAllAndForTheChannel) {
  Problem problem;
  for (int32_t i = 0; i < 3; ++i) {
    problem.values.push_back({i, i, 8, true});
    problem.kernels.push_back({{100}, -1, {}, {i}, {}});
    problem.reductions.push_back({{i}, {50}, 0});
  }
  problem.finish();
  Draft draft(problem, kFused);
  EXPECT_EQ(play(draft, {1, 80}, Order::FirstReady).time.v, 100 + 3 * 130);
  ASSERT_TRUE(draft.merge(0, 2));
  EXPECT_FALSE(draft.merge(2, 0));
  Moments moments;
  EXPECT_EQ(play(draft, {1, 80}, Order::FirstReady, &moments).time.v, 330 + 180);
  EXPECT_EQ(moments.started[0].v, 330);
  EXPECT_EQ(moments.started[1].v, 200);
}

TEST(Timeline, LineThroughMeasuredTimes) {
  const std::vector<SizeTime> exact = {{{0}, {500}}, {{1000}, {2500}}, {{4000}, {8500}}};
  EXPECT_NEAR(fit_line(exact).ns_per_byte, 2, 1e-9);
  EXPECT_NEAR(fit_line(exact).ns, 500, 1e-6);
  EXPECT_EQ(fit_line(exact).time({10}).v, 520);
  EXPECT_EQ(fit_line(std::vector<SizeTime>{{{64}, {900}}}).time({1 << 20}).v, 900);
  const std::vector<SizeTime> steep = {{{1000}, {10}}, {{2000}, {1000}}};  // would begin below 0
  EXPECT_EQ(fit_line(steep).ns, 0);
  EXPECT_GT(fit_line(steep).ns_per_byte, 0);
}

}  // namespace
}  // namespace dc::fusion
