// The search next to all answers there are, on graphs small enough to list them. Nothing of the
// code under test is used to list, check or time an answer.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "src/fusion/greedy.h"
#include "src/fusion/joint.h"
#include "src/fusion/search.h"
#include "tests/src/fusion/random_problem.h"

namespace dc::fusion {
namespace {

constexpr int64_t kLaunch = 300, kPerByte = 1;
constexpr double kWirePerByte = 0.4, kWireLatency = 900;

using Partition = std::vector<int>;  // the part of each item; parts are numbered as they come

void each_partition(size_t count, Partition& partition, int parts,
                    const std::function<void(const Partition&, int)>& what) {
  if (partition.size() == count) return what(partition, parts);
  for (int part = 0; part <= parts; ++part) {
    partition.push_back(part);
    each_partition(count, partition, std::max(parts, part + 1), what);
    partition.pop_back();
  }
}

class Answer {
 public:
  Answer(const Problem& problem, const Partition& part, int parts)
      : problem_(problem), part_(part), parts_(parts) {
    reaches_.assign(static_cast<size_t>(parts), std::vector<bool>(static_cast<size_t>(parts)));
    for (size_t i = 0; i < part.size(); ++i) {
      for (const int32_t read : problem.kernels[i].reads) {
        const int32_t maker = problem.values[static_cast<size_t>(read)].maker;
        if (maker >= 0 && of(maker) != part[i]) edge(of(maker), part[i]) = true;
      }
    }
    before_ = reaches_;
    for (int k = 0; k < parts; ++k) {
      for (int i = 0; i < parts; ++i) {
        for (int j = 0; j < parts; ++j) {
          if (edge(i, k) && edge(k, j)) edge(i, j) = true;
        }
      }
    }
  }

  // Parts of more than one kernel are of one kind, hang together, and wait for themselves nowhere.
  bool is_allowed() {
    for (int part = 0; part < parts_; ++part) {
      if (edge(part, part)) return false;
      const std::vector<int> members = members_of(part);
      if (members.size() == 1) continue;
      std::set<int> reached{members[0]};
      for (size_t round = 0; round < members.size(); ++round) {
        for (const int a : members) {
          for (const int b : members) {
            if (reached.contains(a) && (reads(a, b) || reads(b, a))) reached.insert(b);
          }
        }
      }
      if (reached.size() != members.size()) return false;
      for (const int member : members) {
        const int kind = problem_.kernels[static_cast<size_t>(member)].kind;
        if (kind < 0 || kind != problem_.kernels[static_cast<size_t>(members[0])].kind)
          return false;
      }
    }
    return true;
  }

  int64_t time(const Partition& buckets, int count) {
    run();
    std::vector<int64_t> ready(static_cast<size_t>(count)), bytes(static_cast<size_t>(count));
    for (size_t i = 0; i < buckets.size(); ++i) {
      const auto bucket = static_cast<size_t>(buckets[i]);
      const int64_t end = end_[static_cast<size_t>(of(problem_.reductions[i].after[0]))];
      ready[bucket] = std::max(ready[bucket], end);
      bytes[bucket] += problem_.reductions[i].bytes.v;
    }
    std::vector<size_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return ready[a] < ready[b]; });
    int64_t free = 0;
    for (const size_t bucket : order)
      free = std::max(free, ready[bucket]) +
             std::llround(kWirePerByte * static_cast<double>(bytes[bucket]) + kWireLatency);
    return std::max(free, *std::max_element(end_.begin(), end_.end()));
  }

 private:
  int of(int32_t kernel) const { return part_[static_cast<size_t>(kernel)]; }
  std::vector<bool>::reference edge(int a, int b) {
    return reaches_[static_cast<size_t>(a)][static_cast<size_t>(b)];
  }
  std::vector<int> members_of(int part) const {
    std::vector<int> members;
    for (size_t i = 0; i < part_.size(); ++i) {
      if (part_[i] == part) members.push_back(static_cast<int>(i));
    }
    return members;
  }
  bool reads(int a, int b) const {
    for (const int32_t read : problem_.kernels[static_cast<size_t>(a)].reads) {
      if (problem_.values[static_cast<size_t>(read)].maker == b) return true;
    }
    return false;
  }

  int64_t time_of(int part) const {
    const std::vector<int> members = members_of(part);
    std::set<int32_t> in, out;
    int64_t apart = 0, beyond = 0;
    for (const int member : members) {
      const Kernel& kernel = problem_.kernels[static_cast<size_t>(member)];
      int64_t own = kLaunch;
      for (const int32_t read : kernel.reads) {
        const Value& value = problem_.values[static_cast<size_t>(read)];
        own += kPerByte * value.bytes;
        if (value.maker < 0 || of(value.maker) != part) in.insert(read);
      }
      const Value& made = problem_.values[static_cast<size_t>(kernel.makes[0])];
      own += kPerByte * made.bytes;
      bool shown = made.kept;
      for (size_t other = 0; other < part_.size(); ++other)
        shown |= part_[other] != part && reads(static_cast<int>(other), member);
      if (shown) out.insert(kernel.makes[0]);
      apart += kernel.time.v;
      beyond += std::max<int64_t>(0, kernel.time.v - own);
    }
    if (members.size() == 1) return apart;
    int64_t together = kLaunch + beyond;
    for (const auto& values : {in, out}) {
      for (const int32_t value : values)
        together += kPerByte * problem_.values[static_cast<size_t>(value)].bytes;
    }
    return std::min(apart, together);
  }

  void run() {
    end_.assign(static_cast<size_t>(parts_), -1);
    std::vector<int> turn(static_cast<size_t>(parts_), -1);
    // The first kernel that others read tells parts of one turn apart.
    std::vector<int> first(static_cast<size_t>(parts_));
    for (int part = 0; part < parts_; ++part) first[static_cast<size_t>(part)] = first_shown(part);
    int64_t now = 0;
    for (int done = 0; done < parts_; ++done) {
      int best = -1;
      std::pair<int, int> least;
      for (int part = 0; part < parts_; ++part) {
        if (turn[static_cast<size_t>(part)] >= 0) continue;
        int last = -1;
        bool ready = true;
        for (int other = 0; other < parts_; ++other) {
          if (!before_[static_cast<size_t>(other)][static_cast<size_t>(part)]) continue;
          ready &= turn[static_cast<size_t>(other)] >= 0;
          last = std::max(last, turn[static_cast<size_t>(other)]);
        }
        const std::pair<int, int> key(last, first[static_cast<size_t>(part)]);
        if (ready && (best < 0 || key < least)) {
          best = part;
          least = key;
        }
      }
      turn[static_cast<size_t>(best)] = done;
      now += time_of(best);
      end_[static_cast<size_t>(best)] = now;
    }
  }

  int first_shown(int part) const {
    for (const int member : members_of(part)) {
      const Kernel& kernel = problem_.kernels[static_cast<size_t>(member)];
      bool shown = problem_.values[static_cast<size_t>(kernel.makes[0])].kept;
      for (size_t other = 0; other < part_.size(); ++other)
        shown |= part_[other] != part && reads(static_cast<int>(other), member);
      if (shown) return member;
    }
    return -1;
  }

  const Problem& problem_;
  const Partition& part_;
  int parts_;
  std::vector<std::vector<bool>> reaches_, before_;
  std::vector<int64_t> end_;
};

// Without and with merges.
struct Least {
  int64_t fused = INT64_MAX, merged = INT64_MAX;
};
Least least_times(const Problem& problem) {
  Least least;
  Partition kernels;
  each_partition(problem.kernels.size(), kernels, 0, [&](const Partition& part, int parts) {
    Answer answer(problem, part, parts);
    if (!answer.is_allowed()) return;
    Partition reductions;
    each_partition(problem.reductions.size(), reductions, 0,
                   [&](const Partition& buckets, int count) {
                     const int64_t time = answer.time(buckets, count);
                     least.merged = std::min(least.merged, time);
                     if (static_cast<size_t>(count) == buckets.size())
                       least.fused = std::min(least.fused, time);
                   });
  });
  return least;
}

// The best of many searches by small steps: with one method each is a random walk.
int64_t searched(const Problem& problem, bool copies, bool merges) {
  const ClosedFormTime fused({kLaunch}, 1'000'000'000 / kPerByte);
  SearchRules rules;
  rules.alpha = 5;
  rules.beta = 1;
  rules.patience = 60;
  rules.uses[static_cast<size_t>(Method::FuseCopy)] = copies;
  rules.uses[static_cast<size_t>(Method::Merge)] = merges;
  const Draft start(problem, fused);
  int64_t least = INT64_MAX;
  for (; rules.seed < 120; ++rules.seed) {
    const Found found = search(start, {kWirePerByte, kWireLatency}, Order::FirstReady, rules);
    least = std::min(least, found.timeline.time.v);
  }
  return least;
}

// Merges join what is near in the graph, so not every set of buckets can be reached.
TEST(BruteForce, SearchFindsTheBestFusionsAndMerges) {
  int gained = 0, merges_gained = 0, best_merges = 0, by_copies = 0;
  constexpr int kProblems = 40;
  for (uint32_t seed = 0; seed < kProblems; ++seed) {
    const Problem problem = random_problem(seed, {7, 3, 1, false});
    const Least least = least_times(problem);
    const int64_t fused = searched(problem, false, false), merged = searched(problem, false, true);
    EXPECT_EQ(fused, least.fused) << "seed " << seed;
    EXPECT_GE(merged, least.merged) << "seed " << seed;
    EXPECT_LE(merged, fused) << "seed " << seed;
    const int64_t with_copies = searched(problem, true, true);
    EXPECT_LE(with_copies, merged) << "seed " << seed;
    Partition apart(problem.kernels.size());
    std::iota(apart.begin(), apart.end(), 0);
    gained += fused < Answer(problem, apart, 7).time({0, 1, 2}, 3) ? 1 : 0;
    merges_gained += least.merged < least.fused ? 1 : 0;
    best_merges += merged == least.merged ? 1 : 0;
    by_copies += with_copies < merged ? 1 : 0;
  }
  EXPECT_GT(gained, 25);
  EXPECT_GT(merges_gained, 20);
  EXPECT_GE(best_merges, kProblems * 9 / 10);
  EXPECT_GT(by_copies, 0);
  RecordProperty("best_merges", best_merges);
}

// Of any fusion, the best of all sets of buckets.
TEST(BruteForce, JoinBestFindsTheBestBuckets) {
  const ClosedFormTime fused({kLaunch}, 1'000'000'000 / kPerByte);
  const LinearTime collective{0.5, kWireLatency};  // of 64 bytes and more nothing is rounded
  int joined = 0, apart = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const Problem problem = random_problem(seed, {7, 6, 1, false});
    Draft draft(problem, fused);
    if (seed % 2 == 1) fuse_in_order(draft);
    int64_t least = INT64_MAX;
    Partition reductions;
    each_partition(6, reductions, 0, [&](const Partition& parts, int) {
      std::vector<int32_t> buckets;
      for (const int part : parts)
        buckets.push_back(static_cast<int32_t>(std::ranges::find(parts, part) - parts.begin()));
      Draft other = draft;
      other.set_buckets(buckets);
      least = std::min(least, play(other, collective, Order::FirstReady).time.v);
    });
    const Timeline found = join_best(draft, collective, Order::FirstReady);
    EXPECT_EQ(found.time.v, least) << "seed " << seed;
    EXPECT_EQ(play(draft, collective, Order::FirstReady).time, found.time);
    std::set<int32_t> buckets;
    for (int32_t i = 0; i < 6; ++i) buckets.insert(draft.bucket(i));
    joined += buckets.size() < 6 ? 1 : 0;
    apart += buckets.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(joined, 20);
  EXPECT_GT(apart, 20);
}

// What improve() starts from in plans and in the table.
std::vector<Draft> starts_of(const Draft& none, const LinearTime& collective) {
  std::vector<Draft> starts{none, none};
  fuse_in_order(starts[1]);
  starts.push_back(search(none, collective, Order::FirstReady, {}).best);
  return starts;
}

TEST(BruteForce, ImproveIsNeverWorseThanItsStartsAndOftenTheBest) {
  const ClosedFormTime fused({kLaunch}, 1'000'000'000 / kPerByte);
  const LinearTime collective{kWirePerByte, kWireLatency};
  int best = 0, better = 0;
  constexpr int kProblems = 40;
  for (uint32_t seed = 0; seed < kProblems; ++seed) {
    const Problem problem = random_problem(seed, {7, 3, 1, false});
    const Draft none(problem, fused);
    const Joint found = improve({{none}}, collective, Order::FirstReady, {.copies = false});
    const int64_t least = least_times(problem).merged;
    EXPECT_TRUE(found.has_ended);
    EXPECT_GE(found.timeline.time.v, least) << "seed " << seed;
    best += found.timeline.time.v == least ? 1 : 0;
  }
  for (uint32_t seed = 0; seed < kProblems; ++seed) {
    const Problem problem = random_problem(seed, {60, 12, 2, true});
    const std::vector<Draft> starts = starts_of(Draft(problem, fused), collective);
    const Joint found = improve(starts, collective, Order::FirstReady, {});
    const Joint again = improve(starts, collective, Order::FirstReady, {});
    EXPECT_EQ(found.best.hash(), again.best.hash());
    EXPECT_EQ(found.timeline.time, play(found.best, collective, Order::FirstReady).time);
    int64_t least = INT64_MAX;
    for (const Draft& start : starts)
      least = std::min(least, play(start, collective, Order::FirstReady).time.v);
    EXPECT_LE(found.timeline.time.v, least) << "seed " << seed;
    better += found.timeline.time.v < least ? 1 : 0;
    if (seed % 8 == 0) {
      EXPECT_LE(decide_jointly(starts[0], collective, Order::FirstReady).timeline.time.v, least);
    }
    const Joint bounded = improve(starts, collective, Order::FirstReady, {.most_work = 1});
    EXPECT_LE(bounded.timeline.time.v, least);
    EXPECT_FALSE(bounded.has_ended);
  }
  EXPECT_GE(best, kProblems * 3 / 4);
  EXPECT_GT(better, kProblems / 2);
  RecordProperty("best", best);
  RecordProperty("better", better);
}

TEST(Search, IsTheSameEveryTime) {
  const ClosedFormTime fused({kLaunch}, 1'000'000'000);
  const Problem problem = random_problem(7, {60, 12, 2, true});
  const Draft start(problem, fused);
  const LinearTime collective{kWirePerByte, kWireLatency};
  const Found one = search(start, collective, Order::FirstReady, {});
  const Found two = search(start, collective, Order::FirstReady, {});
  EXPECT_LT(one.timeline.time, play(start, collective, Order::FirstReady).time);
  EXPECT_EQ(one.timeline.time, play(one.best, collective, Order::FirstReady).time);
  EXPECT_EQ(one.best.hash(), two.best.hash());
  EXPECT_EQ(one.candidates, two.candidates);
  SearchRules other;
  other.seed = 1;
  EXPECT_NE(search(start, collective, Order::FirstReady, other).candidates, one.candidates);
  SearchRules none;
  none.patience = 0;
  EXPECT_EQ(search(start, collective, Order::FirstReady, none).best.hash(), start.hash());
}

}  // namespace
}  // namespace dc::fusion
