#include "src/search/scheduled_steps.h"

#include <gtest/gtest.h>

#include "src/cost/analytic.h"
#include "src/frontend/import.h"
#include "src/search/auto.h"
#include "src/search/chains.h"
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
        for (int part = 0; part <= 8; ++part) {
          const auto made = steps.made({chain, Bytes{1 + most * part / 8}});
          ASSERT_TRUE(made.ok()) << made.status().to_string();
          EXPECT_GE(live_bytes(*made, cost), *least) << passes::print(chain);
        }
        chains += *least > 0;
      }
    }
  }
  EXPECT_GE(chains, 40) << "chains of which something is known";
}

TEST(KnownSteps, ForgetsWhatWasNotUsedForLongest) {
  const auto step = std::make_shared<const ir::Step>(imported(1, 1));
  KnownSteps steps;
  steps.keep("first", step);
  steps.keep("second", step);
  EXPECT_TRUE(steps.find("second"));
  constexpr int kMore = 50'000;  // times the nodes of the step: more than any number that is kept
  for (int i = 0; i < kMore; ++i) {
    ASSERT_TRUE(steps.find("first")) << "used each time";
    steps.keep(std::to_string(i), step);
  }
  EXPECT_FALSE(steps.find("second"));
  EXPECT_FALSE(steps.find("0"));
  EXPECT_TRUE(steps.find(std::to_string(kMore - 1)));
}

// What is known from one candidate changes no other.
TEST(ScheduledSteps, MakesWhatThePassesMake) {
  const cost::AnalyticCost cost(1);
  passes::Options options = per_micro_batch();
  const ir::Step step = imported(8, 1, "llama_8b_cuda.pt2");
  ScheduledSteps steps(step, options, cost);
  int recomputed = 0;
  for (const char* name : {"zero3", "deepcompile-ps"}) {
    const passes::Chain chain = *find_chain(name);
    const auto whole = steps.made({chain, {}});
    ASSERT_TRUE(whole.ok()) << whole.status().to_string();
    for (const int64_t parts : {6, 3}) {
      options.budgets[ir::Space::Device] = Bytes{live_bytes(*whole, cost) / 8 * parts};
      const auto made = steps.made({chain, options.memory()});
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      ir::Step again = step;
      std::vector<passes::Remark> remarks;
      const passes::Chain all_but_layout(chain.begin(), chain.end() - 1);
      ASSERT_TRUE(passes::run_passes(again, all_but_layout, {cost, options, remarks}).ok());
      EXPECT_EQ(ir::print(*made), ir::print(again)) << name;
      for (const passes::Remark& remark : remarks) recomputed += remark.pass == "recompute";
    }
    options.budgets[ir::Space::Device].reset();
  }
  EXPECT_GE(recomputed, 2);
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
