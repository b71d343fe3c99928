#include "src/fusion/draft.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "src/fusion/greedy.h"
#include "src/fusion/random_fusion.h"
#include "src/fusion/search.h"
#include "tests/src/fusion/plain_draft.h"
#include "tests/src/fusion/random_problem.h"

namespace dc::fusion {
namespace {

const ClosedFormTime kFused({40}, 1'000'000'000);

// Kernel i makes value i.
Problem problem_of(std::vector<std::vector<int32_t>> reads) {
  Problem problem;
  for (size_t i = 0; i < reads.size(); ++i) {
    const auto number = static_cast<int32_t>(i);
    problem.values.push_back({number, number, 100, false});
    problem.kernels.push_back({{340}, 0, reads[i], {number}, {}});
  }
  problem.finish();
  return problem;
}

const Group& group(const Draft& draft, int32_t number) {
  return *draft.groups()[static_cast<size_t>(number)];
}

TEST(Draft, OthersWaitForAFusedKernelUnlessItHasACopy) {
  // 0 is read by 1 and 2.
  const Problem problem = problem_of({{}, {0}, {0}});
  Draft one(problem, kFused), two(problem, kFused);
  ASSERT_TRUE(one.fuse(0, 1, false));
  EXPECT_EQ(group(one, 1).members, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(group(one, 1).results, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(one.owner(0), 1);
  EXPECT_EQ(one.read_from(2), (std::vector<int32_t>{1}));
  ASSERT_TRUE(two.fuse(0, 1, true));
  EXPECT_EQ(group(two, 1).members, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(group(two, 1).results, (std::vector<int32_t>{1}));
  EXPECT_EQ(two.owner(0), 0);
  EXPECT_EQ(two.read_from(2), (std::vector<int32_t>{0}));
  EXPECT_NE(one.hash(), two.hash());
  // The last reader takes a copy too: then nothing needs the first any more.
  ASSERT_TRUE(two.fuse(0, 2, true));
  EXPECT_EQ(two.owner(0), -1);
  EXPECT_EQ(two.groups()[0], nullptr);
  // Both are one and two make value 0: it is made once again.
  EXPECT_FALSE(two.fuse(1, 2, false)) << "neither reads from the other";
}

TEST(Draft, TimeIsOfWhatLiesInMemory) {
  const Problem problem = problem_of({{}, {0}, {1}});
  Draft draft(problem, kFused);
  ASSERT_TRUE(draft.fuse(0, 1, false));
  // 40 to start, 100 written; beyond their own start and bytes 0 took 200, 1 took 100.
  EXPECT_EQ(group(draft, 1).time.v, 40 + 100 + 200 + 100);
  ASSERT_TRUE(draft.fuse(1, 2, false));
  EXPECT_EQ(group(draft, 2).time.v, 40 + 100 + 200 + 100 + 100);
}

TEST(Draft, ACycleIsRefused) {
  Problem problem = problem_of({{}, {0}, {0, 1}});
  problem.kernels[1].kind = -1;
  Draft draft(problem, kFused);
  EXPECT_FALSE(draft.fuse(0, 2, false));
  EXPECT_EQ(draft.hash(), Draft(problem, kFused).hash());
  EXPECT_TRUE(draft.fuse(0, 2, true));
}

TEST(Draft, ACopyComesBeforeWhatFollowsIt) {
  // 2 must come after 0, and 3 reads from both.
  Problem problem = problem_of({{}, {0}, {}, {0, 2}});
  problem.kernels[2].after = {0};
  problem.kernels[2].kind = -1;
  problem.finish();
  Draft draft(problem, kFused);
  EXPECT_FALSE(draft.fuse(0, 3, true));
  EXPECT_TRUE(draft.fuse(0, 1, true));
}

TEST(Draft, LimitsAndKindsAndViews) {
  Problem problem = problem_of({{}, {0}, {1}, {2}});
  problem.limits.most_operations = 2;
  Draft draft(problem, kFused);
  ASSERT_TRUE(draft.fuse(0, 1, false));
  EXPECT_FALSE(draft.fuse(1, 2, false));
  EXPECT_TRUE(draft.fuse(2, 3, false));
  Problem kinds = problem_of({{}, {0}});
  kinds.kernels[1].kind = 1;
  EXPECT_FALSE(Draft(kinds, kFused).fuse(0, 1, false));
  Problem views = problem_of({{}, {0}});
  views.values.push_back({-1, 0, 100, false});
  views.kernels[1].reads = {2};
  views.finish();
  EXPECT_FALSE(Draft(views, kFused).fuse(0, 1, false));
  Problem tensors = problem_of({{}, {}, {0, 1}});
  tensors.limits.most_tensors = 1;
  EXPECT_FALSE(Draft(tensors, kFused).fuse(0, 2, false));
}

// What every draft must be, whatever led to it.
void check(const Draft& draft) {
  const Problem& problem = draft.problem();
  std::set<int32_t> owned;
  std::map<int32_t, int> homes;
  for (size_t i = 0; i < draft.groups().size(); ++i) {
    if (draft.groups()[i] == nullptr) continue;
    const Group& one = *draft.groups()[i];
    ASSERT_FALSE(one.own.empty());
    for (const int32_t kernel : one.own) {
      EXPECT_TRUE(owned.insert(kernel).second) << "two groups own it";
      EXPECT_EQ(draft.owner(kernel), static_cast<int32_t>(i));
      EXPECT_TRUE(one.has(kernel));
    }
    std::set<int32_t> operands;
    for (const int32_t member : one.members) {
      ++homes[member];
      bool needed = std::ranges::count(one.own, member) != 0;
      for (const int32_t reader : problem.readers(member)) needed |= one.has(reader);
      EXPECT_TRUE(needed);
      for (const int32_t read : problem.kernel(member).reads) {
        const int32_t maker = problem.value(read).maker;
        if (maker >= 0 && one.has(maker)) continue;
        operands.insert(read);
        if (maker < 0) continue;
        ASSERT_GE(draft.owner(maker), 0) << "no group shows what is read";
      }
    }
    EXPECT_EQ(one.operands, std::vector<int32_t>(operands.begin(), operands.end()));
  }
  for (size_t i = 0; i < problem.kernels.size(); ++i) {
    const auto kernel = static_cast<int32_t>(i);
    EXPECT_GT(homes[kernel], 0);
    bool outside = problem.value(problem.kernel(kernel).makes[0]).kept;
    for (size_t k = 0; k < draft.groups().size(); ++k) {
      if (draft.groups()[k] == nullptr || draft.groups()[k]->has(kernel)) continue;
      for (const int32_t reader : problem.readers(kernel))
        outside |= draft.groups()[k]->has(reader);
    }
    EXPECT_EQ(draft.owner(kernel) >= 0, outside);
  }
}

TEST(Draft, HoldsAfterRandomMoves) {
  int copies = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const Problem problem = random_problem(seed, {12, 3, 1, seed % 2 == 0});
    Draft draft(problem, kFused);
    std::mt19937 random(seed);
    for (int i = 0; i < 40; ++i) {
      const auto pick = [&] { return static_cast<int32_t>(random() % problem.kernels.size()); };
      const bool duplicate = i % 3 != 0;
      const uint64_t before = draft.hash();
      const bool fused = draft.fuse(pick(), pick(), duplicate);
      copies += fused && duplicate ? 1 : 0;
      EXPECT_EQ(fused, draft.hash() != before);
      check(draft);
      if (HasFailure()) FAIL() << "seed " << seed;
      // Draws no cycle: everything can run.
      Moments moments;
      play(draft, {}, Order::FirstReady, &moments);
      const auto there =
          std::ranges::count_if(draft.groups(), [](const auto& g) { return g != nullptr; });
      ASSERT_EQ(static_cast<std::ptrdiff_t>(moments.order.size()), there);
    }
  }
  EXPECT_GT(copies, 300);
}

// A bounded walk and groups kept up to date give what full walks and sets worked out anew give.
TEST(Draft, IsThePlainOneAfterRandomMoves) {
  std::map<Fused, int> answers;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const Problem problem = random_problem(seed, {22, 4, 1, seed % 2 == 0});
    Draft draft(problem, kFused);
    PlainDraft plain(problem);
    std::mt19937 random(seed);
    for (int i = 0; i < 60; ++i) {
      const auto later = static_cast<int32_t>(random() % problem.kernels.size());
      if (draft.groups()[static_cast<size_t>(later)] == nullptr) continue;
      const std::vector<int32_t> before = draft.read_from(later);
      if (before.empty()) continue;
      const int32_t earlier = before[random() % before.size()];
      const bool duplicate = random() % 3 == 0;
      const Fused expected = plain.fuse(earlier, later, duplicate);
      ASSERT_EQ(draft.fuse(earlier, later, duplicate), expected == Fused::Yes) << "seed " << seed;
      ++answers[expected];
      for (size_t k = 0; k < draft.groups().size(); ++k) {
        const PlainDraft::Members& members = plain.groups()[k];
        ASSERT_EQ(draft.groups()[k] == nullptr, members.all.empty()) << "seed " << seed;
        if (members.all.empty()) continue;
        const Group& one = *draft.groups()[k];
        ASSERT_EQ(std::set<int32_t>(one.members.begin(), one.members.end()), members.all);
        ASSERT_EQ(std::set<int32_t>(one.own.begin(), one.own.end()), members.own);
      }
    }
  }
  EXPECT_GT(answers[Fused::Yes], 1000);
  EXPECT_GT(answers[Fused::Cycle], 100);
}

TEST(Greedy, BucketsBySize) {
  Problem problem = problem_of({{}, {}, {}, {}, {}});
  for (int32_t i = 0; i < 5; ++i) problem.reductions.push_back({{i}, {10}, 0});
  problem.finish();
  const auto buckets = [&](Closing closing, int64_t most, int64_t first) {
    Draft draft(problem, kFused);
    merge_in_order(draft, Order::Program, closing, {most}, {first});
    std::vector<int32_t> found;
    for (int32_t i = 0; i < 5; ++i) found.push_back(draft.bucket(i));
    return found;
  };
  EXPECT_EQ(buckets(Closing::UpTo, 25, 0), (std::vector<int32_t>{0, 0, 2, 2, 4}));
  EXPECT_EQ(buckets(Closing::UpTo, 5, 0), (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(buckets(Closing::Past, 25, 5), (std::vector<int32_t>{0, 1, 1, 1, 4}));
}

TEST(Greedy, FusesAllThatMayBe) {
  const Problem problem = problem_of({{}, {0}, {0}, {1, 2}, {3}});
  Draft draft(problem, kFused);
  EXPECT_EQ(fuse_in_order(draft), 4);
  EXPECT_EQ(group(draft, draft.owner(4)).members, (std::vector<int32_t>{0, 1, 2, 3, 4}));
}

TEST(RandomFusion, EqualSeedsGiveEqualDraftsThatPlansCanRun) {
  std::set<uint64_t> drafts;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Problem problem = random_problem(7, {40, 0, 2});
    Draft one(problem, kFused), two(problem, kFused);
    fuse_at_random(one, seed);
    fuse_at_random(two, seed);
    EXPECT_EQ(one.hash(), two.hash());
    drafts.insert(one.hash());
    for (const auto& group : one.groups()) {
      if (group == nullptr) continue;
      for (const int32_t member : group->members) {
        EXPECT_EQ(problem.kernel(member).kind, problem.kernel(group->members[0]).kind);
      }
    }
  }
  EXPECT_GT(drafts.size(), 20u);
}

TEST(Neighbours, AreTheNearest) {
  // 0 -> 1 -> 2 -> 3; 0, 2 and 3 make gradients.
  Problem problem = problem_of({{}, {0}, {1}, {2}});
  problem.reductions = {{{0}, {8}, 0}, {{2}, {8}, 0}, {{3}, {8}, 0}};
  problem.finish();
  Draft draft(problem, kFused);
  EXPECT_EQ(neighbouring_buckets(draft, 0), (std::vector<int32_t>{1}));
  EXPECT_EQ(neighbouring_buckets(draft, 1), (std::vector<int32_t>{2}));
  ASSERT_TRUE(draft.merge(1, 2));
  EXPECT_EQ(neighbouring_buckets(draft, 2), (std::vector<int32_t>{0}));
}

}  // namespace
}  // namespace dc::fusion
