// The smallest plan that is found, and what an error promises of it: each budget of at least its
// bytes has a plan, and so has each that a plan made without a budget keeps.
#include "src/search/smallest_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/cost/costs.h"
#include "src/driver/compile_step.h"
#include "src/frontend/import.h"
#include "src/profile/profile_file.h"
#include "tests/source_dir.h"

namespace dc::driver {
namespace {

using base::Bytes;
using base::Result;
using base::Status;
using runtime::plan::Plan;
using search::kSmallestPlanParts;
using search::PlannedMemory;
using search::smallest_plan;

// The arena of a step of `whole` bytes of which passes can free all but `rest`.
std::optional<int64_t> arena_of(const PlannedMemory& planned, int64_t rest, int64_t whole) {
  return planned ? std::clamp(planned->v, rest, whole) : whole;
}

TEST(SmallestPlan, FindsTheEdge) {
  for (const int64_t rest : {101, 5'000, 70'000, 1'000'000}) {
    int tries = 0;
    const auto found = smallest_plan([&](const PlannedMemory& planned) {
      ++tries;
      return arena_of(planned, rest, 2'000'000);
    });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->bytes, rest);
    EXPECT_LE(tries, 3) << rest;
  }
}

// Almost nothing to plan for gives a large arena: the smallest is between that and no limit.
TEST(SmallestPlan, GallopsDownFromTheBest) {
  for (const int64_t edge : {101, 5'000, 70'000, 1'000'000}) {
    int tries = 0;
    const auto found = smallest_plan([&](const PlannedMemory& planned) -> std::optional<int64_t> {
      ++tries;
      if (planned && planned->v < edge) return 3'000'000;
      return planned ? std::min<int64_t>(planned->v, 2'000'000) : 2'000'000;
    });
    ASSERT_TRUE(found && found->planned);
    EXPECT_GE(found->bytes, edge);
    EXPECT_LE(found->bytes - edge, found->bytes / kSmallestPlanParts + 1);
    EXPECT_LE(tries, 24) << edge;
  }
}

TEST(SmallestPlan, ALimitMayMakeALargerArenaThanNone) {
  const auto found = smallest_plan([](const PlannedMemory& planned) -> std::optional<int64_t> {
    return planned ? 7'000 : 6'400;
  });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->bytes, 6'400);
  EXPECT_FALSE(found->planned);
}

TEST(SmallestPlan, NoneIfNoneIsMade) {
  EXPECT_FALSE(smallest_plan([](const PlannedMemory&) { return std::optional<int64_t>(); }));
}

constexpr const char* kH100 = "/examples/profiles/h100x32.json";

struct Case {
  std::string model;
  int world = 1, accumulation = 1;
  std::string chain = "auto";
  std::optional<ir::Space> offload = std::nullopt;
  std::optional<int> ranks_per_host = std::nullopt;
  std::string profile{};
};

class Subject {
 public:
  explicit Subject(const Case& one) : step_(imported(one)) {
    options_.world = one.world;
    options_.accumulation = one.accumulation;
    options_.chain = one.chain;
    options_.passes.offload_space = one.offload;
    options_.passes.ranks_per_host = one.ranks_per_host;
    options_.search_effort = 48;  // what is refused does not depend on more
    std::optional<profile::Profile> profile;
    if (!one.profile.empty()) {
      auto read = profile::read_profile(std::string(dc::kSourceDir) + one.profile);
      EXPECT_TRUE(read.ok()) << read.status().to_string();
      profile = std::move(*read);
    }
    costs_.emplace(std::move(profile), 1);
  }

  Result<Plan> compiled(std::optional<int64_t> memory, const OutOfTime& out_of_time = {}) const {
    CompileOptions options = options_;
    if (memory) options.passes.budgets[ir::Space::Device] = Bytes{*memory};
    return compile_step(step_, options, costs_->model(), {}, out_of_time);
  }

 private:
  static ir::Step imported(const Case& one) {
    auto step = frontend::import_archive(std::string(dc::kSourceDir) + "/tests/data/" + one.model);
    EXPECT_TRUE(step.ok()) << step.status().to_string();
    return std::move(*step);
  }

  ir::Step step_;
  CompileOptions options_;
  std::optional<cost::Costs> costs_;
};

std::string text_of(const Case& one) {
  return one.model + " " + one.chain + " world " + std::to_string(one.world) +
         (one.offload ? " offloading" : "");
}

int64_t named_budget(const Status& status) {
  const std::string& text = status.sentence();
  const size_t at = text.find("--memory ");
  return at == std::string::npos ? 0 : std::stoll(text.substr(at + 9));
}

int64_t arena(const Plan& plan) { return plan.arena_bytes[static_cast<size_t>(ir::Space::Device)]; }

// Budgets from `bytes` on, closer together near it.
std::vector<int64_t> budgets_from(int64_t bytes, int count) {
  std::vector<int64_t> budgets = {bytes, bytes + 1};
  for (int64_t more = bytes / 2048; static_cast<int>(budgets.size()) < count; more = more * 5 / 3)
    budgets.push_back(bytes + more);
  return budgets;
}

void expect_kept(const Subject& subject, int64_t budget) {
  const Result<Plan> plan = subject.compiled(budget);
  ASSERT_TRUE(plan.ok()) << budget << ": " << plan.status().to_string();
  EXPECT_LE(arena(*plan), budget);
}

void verify(const Case& one, int count = 10) {
  SCOPED_TRACE(text_of(one));
  const Subject subject(one);
  const Result<Plan> whole = subject.compiled(std::nullopt);
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  for (const int64_t budget : budgets_from(arena(*whole), count)) expect_kept(subject, budget);
  const Result<Plan> refused = subject.compiled(1);
  ASSERT_FALSE(refused.ok());
  ASSERT_EQ(refused.status().code(), "DC7010") << refused.status().to_string();
  const int64_t least = named_budget(refused.status());
  ASSERT_GT(least, 1) << refused.status().to_string();
  EXPECT_LE(least, arena(*whole));
  for (const int64_t budget : budgets_from(least, count)) expect_kept(subject, budget);
  // Below it a plan may be found; what is said where none is stays the same.
  for (const int64_t budget : {least / 2, least - least / kSmallestPlanParts, least - 1}) {
    const Result<Plan> below = subject.compiled(budget);
    if (below.ok()) {
      EXPECT_LE(arena(*below), budget);
    } else {
      EXPECT_EQ(named_budget(below.status()), least) << below.status().to_string();
    }
  }
}

TEST(RefusedBudget, WhatTheErrorNamesIsEnoughAndSoIsMore) {
  verify({"mlp.pt2", 1});
  verify({"mlp.pt2", 3, 2});
  verify({"mlp.pt2", 2, 1, "auto", ir::Space::Host});
  for (const char* chain : {"zero0", "zero2", "zero3", "deepcompile-p", "deepcompile-ps"})
    verify({"mlp.pt2", 2, 1, chain});
  verify({"mlp.pt2", 4, 1, "hsdp", std::nullopt, 2});
  verify({"official_joint.pt2", 2});
  verify({"official_joint.pt2", 2, 3, "fsdp"});
  verify({"official_joint.pt2", 2, 1, "deepcompile-ps"});
  verify({"official_joint.pt2", 2, 1, "auto", ir::Space::Disk});
}

// Passes that plan for this budget fill it with live bytes, and addresses need 0.7 % more.
TEST(RefusedBudget, OfALargeModelToo) {
  const Subject subject({"mixtral_dcc_8x7b_cuda.pt2", 32, 1, "hsdp", std::nullopt, 8, kH100});
  const Result<Plan> whole = subject.compiled(std::nullopt);
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  expect_kept(subject, arena(*whole) + arena(*whole) / 1000);
}

// What the user finds by a chain's name the search finds too: at the least budget of each chain,
// closely above it and where nothing limits the chain.
void expect_no_slower_than_named(const Case& one) {
  const Subject by_default(one);
  for (const char* chain : {"zero3", "fsdp", "deepcompile-p", "deepcompile-s", "zero3-trace"}) {
    Case named = one;
    named.chain = chain;
    SCOPED_TRACE(text_of(named));
    const Subject by_name(named);
    const int64_t least = named_budget(by_name.compiled(1).status());
    ASSERT_GT(least, 1);
    for (const int64_t budget : budgets_from(least, 5)) {
      const Result<Plan> theirs = by_name.compiled(budget), ours = by_default.compiled(budget);
      ASSERT_TRUE(theirs.ok()) << budget << ": " << theirs.status().to_string();
      ASSERT_TRUE(ours.ok()) << budget << ": " << ours.status().to_string();
      const int64_t most = theirs->prediction.step_ns;
      EXPECT_LE(ours->prediction.step_ns, most + most / 1000) << budget;
    }
  }
}

TEST(NamedChain, IsNotFasterThanTheDefaultAtAnyBudget) {
  expect_no_slower_than_named({"mlp.pt2", 2});
  expect_no_slower_than_named({"mlp.pt2", 4, 4});
  expect_no_slower_than_named({"official_joint.pt2", 2});
  expect_no_slower_than_named({"official_joint.pt2", 3, 2});
}

// State on the host takes nothing of the device's budget, so nothing is made again for it.
TEST(NamedChain, StateOnTheHostIsNotOfTheDevice) {
  const Subject subject({"official_joint.pt2", 2, 1, "zero-offload", ir::Space::Host});
  const Result<Plan> whole = subject.compiled(std::nullopt);
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  ASSERT_GT(whole->arena_bytes[static_cast<size_t>(ir::Space::Host)], arena(*whole) / 10);
  const Result<Plan> limited = subject.compiled(arena(*whole) + arena(*whole) / 20);
  ASSERT_TRUE(limited.ok()) << limited.status().to_string();
  EXPECT_EQ(limited->prediction.step_ns, whole->prediction.step_ns);
  for (const base::Remark& remark : limited->remarks) EXPECT_NE(remark.pass, "recompute");
}

// What the search finds before its first simulation ends is above these budgets.
TEST(RefusedBudget, NoneThatHasAPlanForLackOfTime) {
  const OutOfTime at_once = [] { return true; };
  for (const Case& one :
       {Case{"mlp.pt2", 2}, Case{"official_joint.pt2", 2}, Case{"mlp.pt2", 2, 1, "zero3"}}) {
    SCOPED_TRACE(text_of(one));
    const Subject subject(one);
    const int64_t least = named_budget(subject.compiled(1).status());
    ASSERT_GT(least, 1);
    for (const int64_t budget : budgets_from(least, 6)) {
      const Result<Plan> plan = subject.compiled(budget, at_once);
      ASSERT_TRUE(plan.ok()) << budget << ": " << plan.status().to_string();
      EXPECT_LE(arena(*plan), budget);
      // Such a plan is not that of the whole search, so it must not be cached.
      const bool says =
          std::find(plan->notes.begin(), plan->notes.end(), kCutShort) != plan->notes.end();
      EXPECT_EQ(says, one.chain == "auto");
    }
    EXPECT_EQ(named_budget(subject.compiled(least / 2, at_once).status()), least);
  }
}

}  // namespace
}  // namespace dc::driver
