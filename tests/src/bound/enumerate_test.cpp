// The bound against the least step time of tiny models, found by trying everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "src/bound/bound.h"
#include "src/cost/costs.h"
#include "src/passes/pass_manager.h"
#include "tests/src/bound/enumerate.h"
#include "tests/src/bound/random_model.h"

namespace dc::bound::test {
namespace {

constexpr int kModels = 640;

ir::Step scheduled(ir::Step step, const char* stage, const cost::CostModel& cost) {
  const auto chain = passes::parse_passes(std::string("shard-parameters=") + stage +
                                          ",insert-collectives,add-update,schedule");
  const passes::Options options;
  std::vector<passes::Remark> remarks;
  for (const passes::PassCall& call : *chain)
    EXPECT_TRUE(passes::apply(call, step, {cost, options, remarks}).ok());
  return step;
}

TEST(LowerBound, IsNeverAboveTheOptimum) {
  std::vector<double> ratios;
  int cut_short = 0, out_of_reach = 0;
  int64_t states = 0;
  for (int seed = 0; seed < kModels; ++seed) {
    Dice dice(static_cast<uint64_t>(seed) + 77'000);
    const int world = 2 + dice.below(3);
    profile::Profile profile = random_profile(dice, world);
    profile.measurements.during_compute.clear();
    const cost::Costs costs(profile, 1);
    const ir::Step model = random_step(dice, world, 1);
    const ir::Step sharded = scheduled(model, "3", costs.model());
    const ir::Step whole = scheduled(model, "2", costs.model());
    const ir::Step replicated = scheduled(model, "0", costs.model());
    Question question{model, sharded, whole, replicated, costs.model()};
    if (dice.chance(40)) question.away = ir::Space::Host;
    question.recompute = dice.chance(75);
    question.budget = INT64_MAX / 4;
    Allowed allowed;
    if (question.away) allowed.away = {*question.away};
    allowed.recompute = question.recompute;
    allowed.one_queue = seed % 2 == 0;
    const ir::Step* others[] = {&whole, &replicated};
    // Half of them with room for everything, then for a part of it.
    int64_t most = 0;
    for (const ir::StateEntry& entry : sharded.state) most += entry.type.bytes().v;
    for (const ir::Parameter& parameter : model.parameters) most += parameter.numel() * 8;
    const ir::Graph& graph = model.programs[0].graph;
    for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
      for (const ir::ValueId result : graph.node(id).results)
        most += graph.value(result).type.bytes().v / 2;
    }
    if (dice.chance(80)) {
      question.budget = most * (55 + dice.below(65)) / 100;
      allowed.budget = base::Bytes{question.budget};
    }
    const LowerBound bound = lower_bound(sharded, others, costs.model(), allowed);
    const Optimum optimum = enumerate(question);
    states += optimum.states;
    cut_short += optimum.complete ? 0 : 1;
    if (optimum.time == INT64_MAX) {
      ++out_of_reach;
      continue;
    }
    ASSERT_LE(bound.time.v, optimum.time)
        << "seed " << seed << ", " << question.budget << " bytes\n"
        << ir::print(model);
    ratios.push_back(static_cast<double>(optimum.time) / static_cast<double>(bound.time.v));
  }
  std::sort(ratios.begin(), ratios.end());
  double logs = 0;
  for (const double ratio : ratios) logs += std::log(ratio);
  const auto at = [&](double part) {
    return ratios[static_cast<size_t>(part * static_cast<double>(ratios.size() - 1))];
  };
  std::printf(
      "%zu models, %d cut short, %d that nothing fits, %lld states: optimum over bound, "
      "least %.4f, quarter %.3f, median %.3f, three quarters %.3f, most %.3f, mean %.3f\n",
      ratios.size(), cut_short, out_of_reach, static_cast<long long>(states), at(0), at(0.25),
      at(0.5), at(0.75), at(1), std::exp(logs / static_cast<double>(ratios.size())));
  EXPECT_GE(ratios.size(), 500u);
}

}  // namespace
}  // namespace dc::bound::test
