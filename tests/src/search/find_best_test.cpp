// The search against what it chooses from: each result is made again through run_passes, simulated
// and laid out, and compared with every named chain treated alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "src/cost/analytic.h"
#include "src/frontend/import.h"
#include "src/passes/pass_manager.h"
#include "src/search/auto.h"
#include "src/search/chains.h"
#include "src/search/moves.h"
#include "src/search/trials.h"
#include "src/sim/simulate.h"
#include "tests/source_dir.h"

namespace dc::search {
namespace {

using base::Bytes;
using base::Nanos;
using passes::Chain;
using passes::ReductionOrder;

ir::Step imported(int world, int accumulation = 1) {
  auto step = frontend::import_archive(std::string(dc::kSourceDir) + "/tests/data/mlp.pt2");
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  step->mesh.axes = {{"dp", world}};
  step->accumulation = accumulation;
  return std::move(*step);
}

struct Made {
  Nanos time;
  Bytes arena;
};
// What a chain makes of the step, by the passes alone; empty if it does not keep the budget.
std::optional<Made> made(const ir::Step& step, const Chain& chain, const passes::Options& options,
                         const cost::CostModel& cost) {
  ir::Step copy = step;
  std::vector<passes::Remark> remarks;
  const auto change = passes::run_passes(copy, chain, {cost, options, remarks});
  if (!change.ok()) {
    EXPECT_EQ(change.status().code(), "DC7010") << change.status().to_string();
    return std::nullopt;
  }
  return Made{sim::simulate(copy, cost).time, Bytes{copy.arena_bytes[ir::Space::Device]}};
}

// The named chains that the search may choose from: none that offloads, and what shards inside
// hosts only where ranks share one.
std::vector<Chain> allowed(const passes::Options& options) {
  const bool has_hosts = options.ranks_per_host.has_value();
  std::vector<Chain> chains;
  for (const NamedChain& named : named_chains()) {
    const auto has = [&](const char* pass) {
      return named.passes.find(pass) != std::string_view::npos;
    };
    if (!has("offload-") && (has_hosts || !has("split-by-host")))
      chains.push_back(*find_chain(named.name));
  }
  EXPECT_GE(chains.size(), has_hosts ? 9u : 8u);
  return chains;
}

SearchResult best(const ir::Step& step, const passes::Options& options, const cost::CostModel& cost,
                  const SearchOptions& search = {}) {
  auto found = find_best(step, options, cost, search);
  EXPECT_TRUE(found.ok()) << found.status().to_string();
  return std::move(*found);
}

passes::Options within(int64_t bytes) {
  passes::Options options;
  options.budgets[ir::Space::Device] = Bytes{bytes};
  return options;
}

// Links from one that hides behind any kernel to one that nothing hides, and one that is latency.
std::vector<cost::AnalyticCost> links() {
  std::vector<cost::AnalyticCost> costs;
  const auto add = [&](int64_t bytes_per_second, int64_t latency_ns) {
    cost::Rates rates = cost::generic_cpu(1);
    rates.gather_bytes = rates.reduce_bytes = {bytes_per_second};
    rates.collective_ns = latency_ns;
    costs.emplace_back(1, rates);
  };
  add(int64_t{1} << 40, 1);
  add(40'000'000, 1000);
  add(1'000'000, 1000);
  add(int64_t{1} << 40, 30'000);
  return costs;
}

// The result made again is what the search says of it, not below the bound, and no named chain is
// shorter.
void expect_shortest(const ir::Step& step, const passes::Options& options,
                     const cost::CostModel& cost) {
  const SearchResult found = best(step, options, cost);
  const auto again = made(step, found.chain, found.options, cost);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->time, found.time) << passes::print(found.chain);
  EXPECT_TRUE(found.fits);
  EXPECT_LE(found.bound.v, found.time.v) << passes::print(found.chain);
  for (const Chain& chain : allowed(options)) {
    const auto other = made(step, chain, found.options, cost);
    ASSERT_TRUE(other);
    EXPECT_LE(found.time.v, other->time.v + other->time.v / 1000) << passes::print(chain);
  }
}

TEST(FindBest, IsWhatItSaysAndNoNamedChainIsShorter) {
  for (const cost::AnalyticCost& cost : links()) {
    for (const int world : {1, 2, 5}) expect_shortest(imported(world), {}, cost);
  }
}

// Whatever memory there is: fusing decided last is no slower than fusing in every chain.
TEST(FindBest, DecidesHowOperatorsAreFused) {
  const cost::AnalyticCost cost(1);
  const ir::Step step = imported(2);
  passes::Options options;
  options.providers = passes::Providers::Native;
  const int64_t most = made(step, *find_chain("zero3"), options, cost)->arena.v;
  for (const int64_t budget : {most * 6 / 10, most * 8 / 10, most, 4 * most}) {
    options.budgets[ir::Space::Device] = Bytes{budget};
    const SearchResult joint = best(step, options, cost);
    for (size_t fusion = 0; fusion < std::size(kFusions); ++fusion) {
      SearchOptions one;
      one.fusion = fusion;
      const SearchResult alone = best(step, options, cost, one);
      EXPECT_LE(joint.bound.v, alone.bound.v);
      if (!alone.fits) continue;
      EXPECT_EQ(fusion_of(alone.chain), fusion) << passes::print(alone.chain);
      if (fusion != 0) continue;
      EXPECT_TRUE(joint.fits);
      EXPECT_LE(joint.time.v, alone.time.v + alone.time.v / 1000) << budget;
    }
  }
}

TEST(FindBest, ChoosesAmongChainsThatShardInsideHostsToo) {
  passes::Options options;
  options.ranks_per_host = 2;
  for (const cost::AnalyticCost& cost : links()) expect_shortest(imported(4), options, cost);
}

TEST(FindBest, KeepsEveryBudgetThatANamedChainKeeps) {
  const cost::AnalyticCost cost = std::move(links()[1]);
  const ir::Step step = imported(4);
  int64_t least = INT64_MAX, most = 0;
  for (const Chain& chain : allowed({})) {
    const auto one = made(step, chain, {}, cost);
    ASSERT_TRUE(one);
    least = std::min(least, one->arena.v);
    most = std::max(most, one->arena.v);
  }
  int fitting = 0;
  for (int part = 0; part <= 8; ++part) {
    const passes::Options options = within(least / 2 + (most - least / 2) * part / 8);
    const SearchResult found = best(step, options, cost);
    const auto again = made(step, found.chain, found.options, cost);
    EXPECT_EQ(found.fits, again.has_value()) << passes::print(found.chain);
    if (again) {
      EXPECT_LE(again->arena, *options.memory());
      ++fitting;
    }
    for (const Chain& chain : allowed(options)) {
      const auto other = made(step, chain, found.options, cost);
      if (!other) continue;
      EXPECT_TRUE(found.fits) << passes::print(chain);
      EXPECT_LE(found.time.v, other->time.v + other->time.v / 1000) << passes::print(chain);
    }
    // The quick question has the answer of the whole search.
    SearchOptions quick;
    quick.first_fit = true;
    EXPECT_EQ(best(step, options, cost, quick).fits, found.fits);
  }
  EXPECT_GE(fitting, 3);
}

TEST(FindBest, IsNotSlowerThanWhatMakesAllAgainOrNothing) {
  const cost::AnalyticCost cost(1);
  auto step =
      frontend::import_archive(std::string(dc::kSourceDir) + "/tests/data/llama_8b_cuda.pt2");
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  step->mesh.axes = {{"dp", 8}};
  constexpr int kEffort = 10;
  int found_by_none = 0;
  for (const int64_t gib : {22, 28, 40}) {
    passes::Options options = within(gib << 30);
    const auto found_with = [&](passes::Recompute way, int effort) {
      options.recompute = way;
      SearchOptions search;
      search.effort = effort;
      return best(*step, options, cost, search);
    };
    const SearchResult found = found_with(passes::Recompute::Auto, kEffort);
    ASSERT_TRUE(found.fits);
    EXPECT_EQ(found.options.recompute, passes::Recompute::Auto);
    const auto again = made(*step, found.chain, found.options, cost);
    ASSERT_TRUE(again) << passes::print(found.chain);
    EXPECT_EQ(again->time, found.time) << passes::print(found.chain);
    for (const auto way : {passes::Recompute::Full, passes::Recompute::Off}) {
      const SearchResult other = found_with(way, kEffort * 3 / 5);
      if (!other.fits) continue;
      EXPECT_LE(found.time.v, other.time.v + other.time.v / 1000) << gib << " GiB";
      found_by_none += found.time < other.time;
    }
  }
  EXPECT_GT(found_by_none, 0);
}

// What passes make of a budget is not smooth: at 74 KiB no single change of the best schedule leads
// to what 71 KiB had.
TEST(FindBest, MoreMemoryIsNotSlower) {
  const ir::Step step = imported(4, 4);
  const cost::AnalyticCost cost(1);
  Nanos before{INT64_MAX / 2};
  for (const int64_t kib : {69, 70, 71, 74, 76, 80}) {
    passes::Options options = within(kib * 1024);
    options.offload_space = ir::Space::Host;
    options.ranks_per_host = 2;
    SearchOptions search;
    search.effort = default_effort(step, options);
    const SearchResult found = best(step, options, cost, search);
    ASSERT_TRUE(found.fits) << kib << " KiB";
    EXPECT_LE(found.time.v, before.v + before.v / 200)
        << kib << " KiB: " << passes::print(found.chain);
    before = std::min(before, found.time);
  }
}

TEST(FindBest, StopsAtItsEffortAndRepeatsItself) {
  const cost::AnalyticCost cost = std::move(links()[1]);
  const ir::Step step = imported(3);
  Nanos before{INT64_MAX / 2};
  for (const int effort : {1, 2, 8, 64}) {
    SearchOptions search;
    search.effort = effort;
    const SearchResult found = best(step, {}, cost, search), again = best(step, {}, cost, search);
    // Half as much again for what makes nothing again; one search does no more than it may.
    EXPECT_LE(found.spent, effort * Trials::kWorkOfOne * 3 / 2);
    passes::Options off;
    off.recompute = passes::Recompute::Off;
    EXPECT_LE(best(step, off, cost, search).spent, effort * Trials::kWorkOfOne);
    EXPECT_EQ(passes::print(found.chain), passes::print(again.chain));
    EXPECT_EQ(found.time, again.time);
    EXPECT_LE(found.time.v, before.v + before.v / 1000) << effort;
    before = std::min(before, found.time);
    EXPECT_FALSE(found.cut_short);
  }
}

// With more effort the search begins with what it does with less: shares of the effort, each for a
// part of the search, led it elsewhere. With little it does not end before something fits.
TEST(FindBest, MoreEffortIsNotSlower) {
  const cost::AnalyticCost fast(1), slow = std::move(links()[1]);
  struct Case {
    int accumulation;
    int64_t kib;
    const cost::AnalyticCost& cost;
  };
  for (const auto& [accumulation, kib, cost] :
       {Case{1, 94, slow}, Case{1, 74, fast}, Case{4, 106, fast}}) {
    const ir::Step step = imported(2, accumulation);
    passes::Options options = within(kib * 1024);
    options.offload_space = ir::Space::Host;
    Nanos before{INT64_MAX / 2};
    for (const int effort : {3, 12, 28, 48, 96, default_effort(step, options)}) {
      SearchOptions search;
      search.effort = effort;
      const SearchResult found = best(step, options, cost, search);
      EXPECT_TRUE(found.fits) << kib << " KiB, effort " << effort;
      EXPECT_LE(found.time.v, before.v + before.v / 1000)
          << kib << " KiB, effort " << effort << ": " << passes::print(found.chain);
      before = std::min(before, found.time);
    }
  }
}

TEST(Trials, AChainWhoseStateAloneIsAboveTheBudgetIsNotTried) {
  const cost::AnalyticCost cost(1);
  const ir::Step step = imported(4);
  passes::Options options;
  options.reduction_order = ReductionOrder::PerMicroBatch;
  const auto state = ScheduledSteps(step, options, cost).state_bytes(*find_chain("zero3"));
  ASSERT_TRUE(state.ok()) << state.status().to_string();
  options.budgets[ir::Space::Device] = Bytes{*state - 1};
  const SearchOptions search;
  StepStore store;
  Trials trials(step, options, cost, search, store);
  const auto tries = [&](const char* name) {
    const auto score = trials.try_once(trials.whole(*find_chain(name)));
    EXPECT_TRUE(score.ok()) << score.status().to_string();
    return score->has_value();
  };
  EXPECT_TRUE(tries("zero3")) << "the first: a search without time for more has a result";
  EXPECT_FALSE(tries("fsdp"));
  EXPECT_TRUE(tries("deepcompile-offload-optimizer"));
  EXPECT_EQ(trials.simulated(), 2);
  EXPECT_GT(trials.spent(), Trials::kWorkOfOne) << "one offloads";
  EXPECT_LT(trials.spent(), 2 * Trials::kWorkOfOne) << "the other has few passes";
}

// Of an effort of four, by schedules that count as one each.
TEST(Trials, AQuarterMoreAreTriedWhileNothingFits) {
  const cost::AnalyticCost cost(1);
  const ir::Step step = imported(4);
  const passes::Chain chain = *find_chain("deepcompile-offload-optimizer");
  SearchOptions search;
  search.effort = 4;
  const auto tries = [&](int64_t budget) {
    passes::Options options;
    options.reduction_order = ReductionOrder::PerMicroBatch;
    options.budgets[ir::Space::Device] = Bytes{budget};
    StepStore store;
    Trials trials(step, options, cost, search, store);
    for (int i = 0; !trials.out_of_effort(); ++i)
      EXPECT_TRUE(trials.try_once({chain, Bytes{budget + i}}).ok());
    return trials.simulated();
  };
  EXPECT_EQ(tries(1024), 5);
  EXPECT_EQ(tries(int64_t{1} << 40), 4);
}

TEST(FindBest, LargerSchedulesAreTriedLessOften) {
  const ir::Step step = imported(2);
  passes::Options with_host, recomputing;
  with_host.offload_space = ir::Space::Host;
  recomputing.recompute = passes::Recompute::Full;
  const int small = default_effort(step, {});
  const auto llama =
      frontend::import_archive(std::string(dc::kSourceDir) + "/tests/data/llama_8b_cuda.pt2");
  ASSERT_TRUE(llama.ok()) << llama.status().to_string();
  const int large = default_effort(*llama, {});
  EXPECT_LT(large, small);
  EXPECT_LT(default_effort(*llama, with_host), large);
  EXPECT_LT(default_effort(*llama, recomputing), large) << "there is less to decide";
  ir::Step deep = *llama;
  deep.programs.resize(10, llama->programs[0]);
  ir::Step accumulating = deep;
  accumulating.accumulation = 4;
  passes::Options limited;
  limited.budgets[ir::Space::Device] = Bytes{1};
  EXPECT_LT(default_effort(accumulating, limited), default_effort(accumulating, {}))
      << "there are layouts to find";
  const int deeper = default_effort(deep, {});
  EXPECT_LT(deeper, large);
  deep.programs.resize(40, llama->programs[0]);
  EXPECT_LT(default_effort(deep, {}), deeper) << "of very large ones fewer than of any other";
  EXPECT_EQ(default_effort(deep, {}), default_effort(deep, with_host));
}

TEST(FindBest, OtherWaysOfFusingAreOfItsEffort) {
  const cost::AnalyticCost cost(1);
  const ir::Step step = imported(2);
  passes::Options options;
  options.providers = passes::Providers::Native;
  options.budgets[ir::Space::Device] = made(step, *find_chain("zero3"), options, cost)->arena;
  for (const int effort : {1, 8, 64}) {
    SearchOptions search;
    search.effort = effort;
    // Those that make all again, and nothing, have three fifths each. Where nothing fits there is
    // one schedule more, the smallest plan.
    const int most = effort + 2 * std::max(1, effort * 3 / 5) + 3;
    EXPECT_LE(best(step, options, cost, search).spent, most * Trials::kWorkOfOne);
  }
}

TEST(FindBest, AClockCutsItShortWithAResult) {
  const cost::AnalyticCost cost = std::move(links()[1]);
  const ir::Step step = imported(3);
  for (const int questions : {0, 1, 5}) {
    int asked = 0;
    SearchOptions search;
    search.out_of_time = [&] { return asked++ >= questions; };
    const SearchResult found = best(step, {}, cost, search);
    EXPECT_TRUE(found.cut_short);
    EXPECT_FALSE(found.chain.empty());
    EXPECT_LE(found.simulated, questions + 1);
  }
}

TEST(FindBest, WhatIsLeftOutIsNotTheResult) {
  const cost::AnalyticCost cost = std::move(links()[1]);
  const ir::Step step = imported(3);
  SearchOptions search;
  Nanos before;
  for (int i = 0; i < 4; ++i) {
    const SearchResult found = best(step, {}, cost, search);
    EXPECT_FALSE(search.left_out.contains(passes::print(found.chain)));
    EXPECT_GE(found.time.v + found.time.v / 1000, before.v);
    before = found.time;
    search.left_out.insert(passes::print(found.chain));
  }
}

TEST(FindBest, EitherOrderOfReductionsIfItMayChoose) {
  for (const cost::AnalyticCost& cost : links()) {
    const ir::Step step = imported(2, 3);
    const auto in_order = [&](ReductionOrder order) {
      passes::Options options;
      options.reduction_order = order;
      return best(step, options, cost);
    };
    const SearchResult once = in_order(ReductionOrder::PerStep),
                       each = in_order(ReductionOrder::PerMicroBatch),
                       any = in_order(ReductionOrder::Any),
                       none = in_order(ReductionOrder::ByStage);
    EXPECT_EQ(any.time, std::min(once.time, each.time));
    EXPECT_EQ(any.bound, std::min(once.bound, each.bound)) << "of all that it may choose";
    EXPECT_EQ(none.time, each.time) << "the order that bits depend on is not chosen unasked";
    EXPECT_THAT(any.options.reduction_order,
                testing::AnyOf(ReductionOrder::PerStep, ReductionOrder::PerMicroBatch));
  }
}

TEST(NamedChains, AreReadAndEndWithTheLayout) {
  for (const auto chains : {named_chains(), baseline_chains(), fusion_chains()}) {
    for (const NamedChain& named : chains) {
      const auto chain = find_chain(named.name);
      ASSERT_TRUE(chain.ok()) << named.name;
      EXPECT_EQ(passes::print(*chain), named.passes);
      EXPECT_EQ(chain->back().pass->gives, ir::Stage::Allocated);
    }
  }
  const auto none = find_chain("zero4");
  EXPECT_EQ(none.status().code(), "DC2610");
  EXPECT_THAT(none.status().sentence(), testing::HasSubstr("zero"));
}

}  // namespace
}  // namespace dc::search
