#include "src/search/scheduled_steps.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/cost/analytic.h"
#include "src/cost/costs.h"
#include "src/frontend/import.h"
#include "src/ir/text_format.h"
#include "src/profile/profile_file.h"
#include "src/search/auto.h"
#include "src/search/chains.h"
#include "src/search/moves.h"
#include "src/search/opening.h"
#include "src/search/smallest_chain.h"
#include "tests/source_dir.h"

namespace dc::search {
namespace {

using base::Bytes;

ir::Step imported(int world, int accumulation, const std::string& archive = "mlp.pt2") {
  auto step = frontend::import_archive(std::string(dc::kSourceDir) + "/tests/data/" + archive);
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  step->mesh.axes = {{"dp", world}};
  step->accumulation = accumulation;
  return std::move(*step);
}

passes::Options per_micro_batch() {
  passes::Options options;
  options.reduction_order = passes::ReductionOrder::PerMicroBatch;
  return options;
}

// Whatever the passes plan for.
TEST(ScheduledSteps, NoPlanOfAChainHasFewerLiveBytesThanItSays) {
  const cost::AnalyticCost cost(1);
  const passes::Options options = per_micro_batch();
  int chains = 0;
  for (const int world : {1, 2, 4}) {
    for (const int accumulation : {1, 3}) {
      const ir::Step step = imported(world, accumulation);
      ScheduledSteps steps(step, options, cost);
      for (const passes::Chain& chain : chains_with_text(step, options)) {
        const auto least = steps.least_live(chain);
        ASSERT_TRUE(least.ok()) << least.status().to_string();
        const auto whole = steps.made({chain, {}});
        ASSERT_TRUE(whole.ok()) << whole.status().to_string();
        const int64_t most = live_bytes(*whole, cost);
        EXPECT_GE(most, *steps.least_live_without_limit(chain)) << passes::print(chain);
        for (int part = 0; part <= 8; ++part) {
          const auto made = steps.made({chain, Bytes{1 + most * part / 8}});
          ASSERT_TRUE(made.ok()) << made.status().to_string();
          EXPECT_GE(live_bytes(*made, cost), *least) << passes::print(chain);
        }
        chains += *least > 0;
      }
    }
  }
  EXPECT_GE(chains, 70) << "chains of which something is known";
}

// Gate and up of Mixtral's experts are parts of one product: no kernel gives a further result.
TEST(ScheduledSteps, FusesInEachWayThatMakesAnotherStep) {
  const cost::AnalyticCost cost(1);
  passes::Options options = per_micro_batch();
  options.providers = passes::Providers::Native;
  const auto different = [&](const char* archive) {
    const ir::Step step = imported(2, 1, archive);
    return ScheduledSteps(step, options, cost).different_fusions();
  };
  const auto llama = different("llama_8b_cuda.pt2"),
             mixtral = different("mixtral_dcc_8x7b_cuda.pt2");
  ASSERT_TRUE(llama.ok() && mixtral.ok());
  EXPECT_EQ(*llama, (std::vector<size_t>{0, kKeepsLess, kNothingFused, kKeepsLeast}));
  EXPECT_EQ(*mixtral, (std::vector<size_t>{0, kKeepsLess, kNothingFused}));
}

// With a little memory, both are kept at addresses that do not fit, and parameters alone at ones
// that do.
TEST(ScheduledSteps, MakesTheSameWhateverAnotherSearchFoundToKeepNothing) {
  const auto profile =
      profile::read_profile(std::string(dc::kSourceDir) + "/examples/profiles/h100x32.json");
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  const cost::Costs costs(*profile, 1);
  const auto chain = passes::parse_passes(
      DC_OPENING
      "fuse-elementwise,shard-parameters=3,insert-collectives,add-update,schedule,recompute=0,"
      "gather-by-block,offload-optimizer,offload-activations,offload-parameters,"
      "overlap-reductions=1000000000,keep-jointly=400,layout-arenas");
  ASSERT_TRUE(chain.ok()) << chain.status().to_string();
  passes::Options options = per_micro_batch();
  options.offload_space = ir::Space::Host;
  options.providers = passes::Providers::Native;
  options.budgets[ir::Space::Device] = Bytes{24'038'024'443};
  passes::Options full = options;
  full.recompute = passes::Recompute::Full;
  const ir::Step step = imported(16, 1, "mixtral_dcc_8x7b_cuda.pt2");
  StepStore store;
  const Candidate candidate{*chain, options.memory()};
  const auto of_both = ScheduledSteps(step, options, costs.model(), &store).made(candidate);
  const auto found = ScheduledSteps(step, full, costs.model(), &store).made(candidate);
  const auto expected = ScheduledSteps(step, full, costs.model()).made(candidate);
  ASSERT_TRUE(of_both.ok() && found.ok() && expected.ok());
  EXPECT_NE(ir::print(*expected), ir::print(*of_both));
  EXPECT_EQ(ir::print(*found), ir::print(*expected));
  (void)ScheduledSteps(step, options, costs.model(), &store).costs(candidate);
  const auto costs_found = ScheduledSteps(step, full, costs.model(), &store).costs(candidate);
  const auto costs_expected = ScheduledSteps(step, full, costs.model()).costs(candidate);
  ASSERT_TRUE(costs_found.ok() && costs_expected.ok());
  EXPECT_EQ(costs_found->time, costs_expected->time);
}

// In any order of questions, and under another budget.
TEST(ScheduledSteps, SharedCostsAreThoseOfEachAlone) {
  const cost::AnalyticCost cost(1);
  const ir::Step step = imported(3, 2);
  StepStore store;
  for (const int64_t budget : {1'000'000, 120'000, 60'000, 40'000}) {
    for (const passes::Recompute way :
         {passes::Recompute::Auto, passes::Recompute::Full, passes::Recompute::Off}) {
      passes::Options options = per_micro_batch();
      options.recompute = way;
      options.budgets[ir::Space::Device] = Bytes{budget};
      ScheduledSteps shared(step, options, cost, &store);
      for (const passes::Chain& chain : chains_with_text(step, options)) {
        const Candidate candidate{chain, options.memory()};
        ScheduledSteps alone(step, options, cost);
        const auto found = shared.costs(candidate), expected = alone.costs(candidate);
        const auto arena = shared.arena_if_too_large(candidate),
                   expected_arena = alone.arena_if_too_large(candidate);
        ASSERT_TRUE(found.ok() && expected.ok() && arena.ok() && expected_arena.ok());
        EXPECT_EQ(found->time, expected->time) << budget << ' ' << passes::print(chain);
        EXPECT_EQ(found->communication, expected->communication);
        EXPECT_EQ(found->bytes, expected->bytes);
        EXPECT_EQ(found->nodes, expected->nodes);
        EXPECT_EQ(arena->has_value(), expected_arena->has_value());
      }
    }
  }
}

// As SmallestPlans, by making all.
std::optional<SmallestPlan> smallest_of_all(ScheduledSteps& steps, const passes::Chain& chain) {
  return smallest_plan([&](const PlannedMemory& planned) -> std::optional<int64_t> {
    const auto made = steps.made({chain, planned});
    if (!made.ok()) return std::nullopt;
    return steps.arena(*made)->v;
  });
}

void expect_same(const std::optional<SmallestPlan>& found,
                 const std::optional<SmallestPlan>& expected, const passes::Chain& chain) {
  ASSERT_EQ(found.has_value(), expected.has_value()) << passes::print(chain);
  if (!found) return;
  EXPECT_EQ(found->bytes, expected->bytes) << passes::print(chain);
  EXPECT_EQ(found->planned, expected->planned) << passes::print(chain);
}

// Leaving out what cannot be the smallest changes no answer.
TEST(SmallestPlans, AreThoseOfMakingAll) {
  const cost::AnalyticCost cost(1);
  for (const bool offloads : {false, true}) {
    passes::Options options = per_micro_batch();
    if (offloads) options.offload_space = ir::Space::Host;
    for (const int accumulation : {1, 3}) {
      const ir::Step step = imported(2, accumulation);
      ScheduledSteps steps(step, options, cost), all(step, options, cost);
      SmallestPlans plans(steps, cost);
      int64_t least = INT64_MAX;
      for (const passes::Chain& chain : chains_with_text(step, options)) {
        const auto expected = smallest_of_all(all, chain);
        expect_same(plans.of(chain), expected, chain);
        if (expected) least = std::min(least, expected->bytes);
      }
      EXPECT_EQ(find_smallest(step, options, cost)->bytes, least);
    }
  }
}

// Where recompute frees much: the plan without a limit is not made.
TEST(SmallestPlans, OfALargeModelAreThoseOfMakingAll) {
  const cost::AnalyticCost cost(1);
  const passes::Options options = per_micro_batch();
  const ir::Step step = imported(8, 1, "llama_8b_cuda.pt2");
  ScheduledSteps steps(step, options, cost);
  SmallestPlans plans(steps, cost);
  const passes::Chain chain = *find_chain("zero3");
  const std::optional<SmallestPlan> found = plans.of(chain);
  ASSERT_TRUE(found);
  EXPECT_GT(*steps.least_live_without_limit(chain), found->bytes);
  expect_same(found, smallest_of_all(steps, chain), chain);
}

// No schedule is tried that cannot fit, once it is known that none does.
TEST(FindBest, EndsWhereNoChainCanFit) {
  const cost::AnalyticCost cost(1);
  passes::Options options = per_micro_batch();
  const ir::Step step = imported(2, 3);
  ScheduledSteps steps(step, options, cost);
  int64_t least = INT64_MAX;
  for (const passes::Chain& text : chains_with_text(step, options)) {
    for (size_t fusion = 0; fusion < std::size(kFusions); ++fusion) {
      if (const passes::Chain chain = fused(text, fusion); !chain.empty())
        least = std::min(least, *steps.least_live(chain));
    }
  }
  const auto smallest = find_smallest(step, options, cost);
  ASSERT_TRUE(smallest);
  EXPECT_LT(least, smallest->bytes);
  options.budgets[ir::Space::Device] = Bytes{least - 1};
  const auto found = find_best(step, options, cost, {});
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_FALSE(found->fits);
  ASSERT_TRUE(found->smallest);
  EXPECT_EQ(found->smallest->bytes, smallest->bytes);
  EXPECT_LE(found->simulated, 8) << "joint starts, other ways of fusing, the smallest plan";
}

// The search names the smallest plan that find_smallest() finds, also where it only had to look at
// the bound.
TEST(FindBest, NamesTheSmallestPlanWhereNothingFits) {
  const cost::AnalyticCost cost(1);
  for (const bool offloads : {false, true}) {
    passes::Options options = per_micro_batch();
    if (offloads) options.offload_space = ir::Space::Host;
    const ir::Step step = imported(2, 1);
    const auto smallest = find_smallest(step, options, cost);
    ASSERT_TRUE(smallest);
    for (const int64_t bytes : {int64_t{1}, int64_t{1024}, smallest->bytes - 64, smallest->bytes}) {
      options.budgets[ir::Space::Device] = Bytes{bytes};
      const auto found = find_best(step, options, cost, {});
      ASSERT_TRUE(found.ok()) << found.status().to_string();
      if (found->fits) {
        EXPECT_LE(found->bound, found->time);
        EXPECT_FALSE(found->smallest);
        continue;
      }
      EXPECT_LT(bytes, smallest->bytes);
      ASSERT_TRUE(found->smallest) << bytes;
      EXPECT_EQ(found->smallest->bytes, smallest->bytes);
      EXPECT_EQ(passes::print(found->smallest->chain), passes::print(smallest->chain));
      if (bytes == 1) {
        EXPECT_EQ(found->simulated, 1) << "no search for what the bound excludes";
      }
    }
  }
}

}  // namespace
}  // namespace dc::search
