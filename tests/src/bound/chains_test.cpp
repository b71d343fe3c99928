// The bound against plans: random models, machines and chains of passes; no plan may be below the
// bound of its budget. What the passes decide is theirs; the bound knows none of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "src/analysis/memory.h"
#include "src/bound/bound.h"
#include "src/cost/costs.h"
#include "src/passes/pass_manager.h"
#include "src/sim/simulate.h"
#include "tests/src/bound/random_model.h"

namespace dc::bound::test {
namespace {

constexpr int kModels = 500, kChains = 12;

ir::Step scheduled(ir::Step step, const std::string& text, const passes::Options& options,
                   const cost::CostModel& cost) {
  const auto chain = passes::parse_passes(text);
  EXPECT_TRUE(chain.ok()) << text << ": " << chain.status().to_string();
  std::vector<passes::Remark> remarks;
  for (const passes::PassCall& call : *chain) {
    const auto change = passes::apply(call, step, {cost, options, remarks});
    EXPECT_TRUE(change.ok()) << text << ": " << change.status().to_string();
  }
  return step;
}

std::string begin(int stage, bool replicates) {
  return "shard-parameters=" + std::to_string(stage) + (replicates ? ",replicate-state" : "") +
         ",insert-collectives,add-update,schedule";
}

std::string random_chain(Dice& dice, const std::optional<ir::Space>& offload) {
  std::string text = begin(dice.chance(60) ? 3 : dice.below(3), dice.chance(30));
  const int percent = 20 + dice.below(60);
  for (const passes::Pass& pass : passes::all_passes()) {
    if (pass.needs != ir::Stage::Scheduled || pass.gives != ir::Stage::Scheduled) continue;
    if (pass.name.starts_with("offload-") && !offload) continue;
    if (pass.name == "offload-update" && offload != ir::Space::Host) continue;
    if (pass.name == "disco" || pass.name == "fuse-jointly" || pass.name == "fuse-greedily")
      continue;  // other kernels
    if (!dice.chance(percent)) continue;
    std::string next = text + "," + std::string(pass.name);
    if (!pass.argument.empty() && dice.chance(40))
      next += "=" + std::to_string((int64_t{1} << dice.below(20)) + dice.below(3));
    // What contradicts the passes before it is left out.
    if (passes::parse_passes(next).ok()) text = next;
  }
  return text;
}

struct Plan {
  std::string chain;
  int64_t time = 0, bytes = 0;
};

struct Case {
  ir::Step step;
  passes::Options options;
  const cost::CostModel& cost;
};

Plan plan_of(const Case& one, const std::string& chain, const passes::Options& options) {
  const ir::Step step = scheduled(one.step, chain, options, one.cost);
  const auto peak = analysis::peak_memory(step, [&](const ir::Graph& graph, const ir::Node& node) {
    return one.cost.scratch(graph, node).bytes;
  });
  return {chain, sim::simulate(step, one.cost).time.v, peak.live.v};
}

std::vector<Plan> plans_of(const Case& one, Dice& dice) {
  std::vector<Plan> plans = {plan_of(one, begin(3, false), one.options)};
  const int64_t plain = plans[0].bytes;
  for (int i = 0; i < kChains; ++i) {
    passes::Options options = one.options;
    if (dice.chance(75))
      options.budgets[ir::Space::Device] = {plain * (20 + dice.below(130)) / 100};
    if (one.options.recompute == passes::Recompute::Auto && dice.chance(25))
      options.recompute = passes::Recompute::Full;
    plans.push_back(plan_of(one, random_chain(dice, one.options.offload_space), options));
  }
  return plans;
}

constexpr base::Nanos kAll{INT64_MAX};  // sufficient

// Also from the prices of another relaxation. Prints how near the best plans come: by chains of
// random passes, so not near at all.
TEST(LowerBound, NoRandomChainIsBelowIt) {
  std::vector<double> ratios;
  for (int seed = 0; seed < kModels; ++seed) {
    Dice dice(static_cast<uint64_t>(seed) + 1000);
    const int world = 1 + dice.below(4);
    const cost::Costs costs(random_profile(dice, world), 1);
    Case one{random_step(dice, world, 1 + dice.below(3)), {}, costs.model()};
    one.options.reduction_order =
        dice.chance(50) ? passes::ReductionOrder::PerStep : passes::ReductionOrder::PerMicroBatch;
    if (dice.chance(50))
      one.options.offload_space = dice.chance(50) ? ir::Space::Host : ir::Space::Disk;
    if (dice.chance(25)) one.options.recompute = passes::Recompute::Off;
    std::vector<ir::Step> steps;
    for (const int stage : {3, 2, 0})
      steps.push_back(scheduled(one.step, begin(stage, false), one.options, one.cost));
    const ir::Step* others[] = {&steps[1], &steps[2]};
    const std::vector<Plan> plans = plans_of(one, dice);
    for (const Plan& tight : plans) {
      Allowed allowed;
      allowed.budget = {tight.bytes};
      if (one.options.offload_space) allowed.away = {*one.options.offload_space};
      allowed.recompute = one.options.recompute != passes::Recompute::Off;
      const LowerBound bound = lower_bound(steps[0], others, one.cost, allowed);
      allowed.one_queue = false;  // as the search asks
      const LowerBound of_queues = lower_bound(steps[0], others, one.cost, allowed, kAll, &bound);
      allowed.one_queue = true;
      const LowerBound again = lower_bound(steps[0], others, one.cost, allowed, kAll, &of_queues);
      EXPECT_GT(std::min({bound.time, of_queues.time, again.time}).v, 0);
      int64_t best = INT64_MAX;
      for (const Plan& plan : plans) {
        if (plan.bytes > tight.bytes) continue;
        best = std::min(best, plan.time);
        ASSERT_LE(std::max({bound.time, of_queues.time, again.time}).v, plan.time)
            << "seed " << seed << ", " << tight.bytes << " bytes: " << plan.chain << "\n"
            << ir::print(one.step);
      }
      ratios.push_back(static_cast<double>(best) / static_cast<double>(bound.time.v));
    }
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("%zu budgets: time over bound, least %.3f, median %.3f, most %.3f\n", ratios.size(),
              ratios.front(), ratios[ratios.size() / 2], ratios.back());
}

// It grows with every byte too few, but no further than says that.
TEST(LowerBound, OfABudgetOutOfReachIsATime) {
  for (int seed = 0; seed < 50; ++seed) {
    Dice dice(static_cast<uint64_t>(seed) + 5000);
    const cost::Costs costs(random_profile(dice, 2), 1);
    const ir::Step step = scheduled(random_step(dice, 2, 1), begin(3, false), {}, costs.model());
    const LowerBound free = lower_bound(step, {}, costs.model(), {});
    Allowed allowed;
    allowed.budget = base::Bytes{1};
    const LowerBound tight = lower_bound(step, {}, costs.model(), allowed);
    EXPECT_GE(tight.time, free.time) << "seed " << seed;
    EXPECT_LE(tight.time.v / 1001, free.time.v) << "seed " << seed;
  }
}

}  // namespace
}  // namespace dc::bound::test
