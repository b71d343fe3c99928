// What plans say of their state: roles and placements, from the step's own, on every rank.
#include <gtest/gtest.h>

#include "runtime/plan/extent.h"
#include "runtime/plan/state_entries.h"
#include "src/cost/costs.h"
#include "src/driver/compile_step.h"
#include "src/frontend/import.h"
#include "tests/source_dir.h"

namespace dc::driver {
namespace {

namespace rp = runtime::plan;
using rp::StateRole;

struct Case {
  int ranks;
  std::string stage, middle = "";
  bool is_sgd = false;
  int accumulation = 1;
  std::optional<base::Bytes> memory = {};
};

rp::Plan compiled(const Case& how) {
  base::Result<ir::Step> step =
      frontend::import_archive(std::string(dc::kSourceDir) + "/tests/data/mlp.pt2");
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  if (how.is_sgd) {
    step->optimizer.kind = ir::OptimizerKind::Sgd;
    step->optimizer.groups = {ir::OptimizerGroup{}};
    step->optimizer.groups[0].momentum = 0.9;
  }
  CompileOptions options;
  options.world = how.ranks;
  options.accumulation = how.accumulation;
  options.passes.budgets[ir::Space::Device] = how.memory;
  options.own_passes = "normalize-graph,shard-parameters=" + how.stage +
                       ",insert-collectives,add-update,schedule" + how.middle + ",layout-arenas";
  const cost::Costs costs(std::nullopt, 1);
  base::Result<rp::Plan> plan = compile_step(std::move(*step), options, costs.model());
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return std::move(*plan);
}

// How often each element of a parameter is held by some rank, through the entry of a role.
std::vector<int> holders(const rp::Plan& plan, size_t parameter, int32_t entry) {
  const int64_t elements = *rp::element_count(plan.parameters[parameter].sizes);
  std::vector<int> count(static_cast<size_t>(elements));
  for (int32_t rank = 0; rank < plan.world(); ++rank) {
    const rp::ElementRange held =
        runtime::plan::held_elements(plan, plan.state[static_cast<size_t>(entry)], elements, rank);
    for (int64_t i = 0; i < held.count; ++i) ++count[static_cast<size_t>(held.first + i)];
  }
  return count;
}

TEST(CompileOptions, TheDeviceIsInThePlanAndInTheCacheKey) {
  CompileOptions options;
  EXPECT_NE(options.canonical().find("device=cpu"), std::string::npos);
  options.device = base::DeviceKind::Checked;
  EXPECT_NE(options.canonical().find("device=checked"), std::string::npos);
  base::Result<ir::Step> step =
      frontend::import_archive(std::string(dc::kSourceDir) + "/tests/data/mlp.pt2");
  ASSERT_TRUE(step.ok());
  const cost::Costs costs(std::nullopt, 1);
  const base::Result<rp::Plan> plan = compile_step(std::move(*step), options, costs.model());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->device, base::DeviceKind::Checked);
}

TEST(StateFacts, EveryElementOfValueAndMomentsIsHeldOnceOrByAll) {
  for (const Case& how : {Case{1, "0"}, Case{3, "0"}, Case{3, "1"}, Case{4, "2"}, Case{5, "3"},
                          Case{4, "3", ",keep-resident"}, Case{2, "2", ",offload-optimizer"}}) {
    const rp::Plan plan = compiled(how);
    const rp::ParameterStates states(plan);
    const bool whole = how.stage == "0";
    for (size_t p = 0; p < plan.parameters.size(); ++p) {
      for (const int32_t entry : {states.authoritative(p), states.find(p, StateRole::Moment1),
                                  states.find(p, StateRole::Moment2)}) {
        ASSERT_GE(entry, 0);
        const std::vector<int> counts = holders(plan, p, entry);
        EXPECT_EQ(counts, std::vector<int>(counts.size(), whole ? how.ranks : 1)) << how.stage;
      }
      EXPECT_EQ(states.resident(p), how.stage != "3");
      EXPECT_EQ(states.find(p, StateRole::Master), -1);
      EXPECT_EQ(states.find(p, StateRole::Momentum), -1);
    }
  }
}

TEST(StateFacts, TheShardIsTakenBeforeTheWholeThatWasGathered) {
  const rp::Plan plan = compiled({3, "1"});
  const rp::ParameterStates states(plan);
  for (size_t p = 0; p < plan.parameters.size(); ++p) {
    const rp::StateEntry& value = plan.state[static_cast<size_t>(states.authoritative(p))];
    EXPECT_EQ(value.role, StateRole::Shard);
    EXPECT_EQ(value.range_of, states.find(p, StateRole::Parameter));
  }
}

TEST(StateFacts, AccumulatorsSayWhatTheySum) {
  for (const auto& [stage, spread] :
       {std::pair{"1", rp::AxisPlacement::Partial}, std::pair{"3", rp::AxisPlacement::FlatShard}}) {
    const rp::Plan plan = compiled({2, stage, "", false, 4});
    const rp::ParameterStates states(plan);
    for (size_t p = 0; p < plan.parameters.size(); ++p) {
      const auto entry = static_cast<size_t>(states.find(p, StateRole::Accumulator));
      ASSERT_LT(entry, plan.state.size());
      ASSERT_EQ(plan.state[entry].placement.size(), 1u);
      EXPECT_EQ(plan.state[entry].placement[0].placement, spread);
    }
  }
}

TEST(StateFacts, SgdHasMomentumAlone) {
  const rp::Plan plan = compiled({2, "2", "", true});
  const rp::ParameterStates states(plan);
  for (size_t p = 0; p < plan.parameters.size(); ++p) {
    EXPECT_GE(states.find(p, StateRole::Momentum), 0);
    EXPECT_EQ(states.find(p, StateRole::Moment1), -1);
  }
}

TEST(StateFacts, OffloadedMomentsLieInTheHost) {
  const base::Bytes budget{compiled({2, "2"}).arena_bytes[0] * 7 / 8};
  const rp::Plan plan = compiled({2, "2", ",offload-optimizer", false, 1, budget});
  const rp::ParameterStates states(plan);
  int64_t bytes = 0;
  for (size_t p = 0; p < plan.parameters.size(); ++p) {
    const auto entry = static_cast<size_t>(states.find(p, StateRole::Moment1));
    const auto tensor = static_cast<size_t>(plan.state[entry].tensor);
    const rp::Slice& slice = plan.slices[static_cast<size_t>(plan.tensors[tensor].slice)];
    if (slice.space == rp::Space::Host) bytes += slice.bytes;
  }
  EXPECT_GT(bytes, 0);
  EXPECT_LE(bytes, plan.arena_bytes[1]);
}

// What an instruction does with bytes says what they are for, in the cases where it can.
TEST(SliceKinds, AgreeWithWhatInstructionsDo) {
  using rp::SliceKind;
  for (const Case& how : {Case{1, "0"}, Case{2, "1", "", false, 4}, Case{3, "3", "", false, 3},
                          Case{4, "3", ",keep-resident"}}) {
    const rp::Plan plan = compiled(how);
    const auto kind = [&](int64_t tensor) {
      return plan.slices[static_cast<size_t>(plan.tensors[static_cast<size_t>(tensor)].slice)].kind;
    };
    const auto is_small = [&](int32_t tensor) { return kind(tensor) == SliceKind::Scalars; };
    int gathers = 0, reductions = 0;
    for (const rp::Program& program : plan.programs) {
      for (const rp::Instruction& in : program.instructions) {
        if (in.op == "dc.accumulate") {
          EXPECT_EQ(kind(in.args[0].i), SliceKind::Gradients);
          EXPECT_EQ(kind(in.args[1].i), SliceKind::Gradients);
        }
        if (in.op == "dc.adamw") {
          EXPECT_EQ(kind(in.args[1].i), SliceKind::OptimizerState);
          EXPECT_EQ(kind(in.args[3].i), SliceKind::Gradients);
        }
        for (const rp::CollectiveBuffer& b : in.buffers) {
          if (in.collective != rp::CollectiveKind::AllGather) {
            EXPECT_EQ(kind(b.input), SliceKind::Gradients);
            EXPECT_EQ(kind(b.output), SliceKind::Gradients);
            ++reductions;
          } else if (!is_small(b.output)) {
            EXPECT_EQ(kind(b.input), SliceKind::Parameters);
            EXPECT_EQ(kind(b.output),
                      how.stage == "3" ? SliceKind::Gathered : SliceKind::Parameters);
            ++gathers;
          }
        }
      }
    }
    EXPECT_EQ(gathers > 0, how.ranks > 1);
    EXPECT_EQ(reductions > 0, how.ranks > 1);
  }
}

// Row-major ranks of two axes: a shard along one, the same along the other.
TEST(StateFacts, HeldElementsFollowTheAxis) {
  rp::Plan plan;
  plan.mesh = {{"replica", 2}, {"shard", 3}};
  rp::StateEntry entry;
  entry.placement = {{1, rp::AxisPlacement::FlatShard, -1, 4}};
  const rp::ElementRange wanted[] = {{0, 4}, {4, 4}, {8, 2}, {0, 4}, {4, 4}, {8, 2}};
  for (int32_t rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(runtime::plan::held_elements(plan, entry, 10, rank), wanted[rank]) << rank;
  }
  entry.placement = {{0, rp::AxisPlacement::FlatShard, -1, 6}};
  EXPECT_EQ(runtime::plan::held_elements(plan, entry, 10, 2), (rp::ElementRange{0, 6}));
  EXPECT_EQ(runtime::plan::held_elements(plan, entry, 10, 3), (rp::ElementRange{6, 4}));
  EXPECT_EQ(runtime::plan::held_elements(plan, entry, 5, 3), (rp::ElementRange{5, 0}));
  entry.placement = {{1, rp::AxisPlacement::Partial}};
  EXPECT_EQ(runtime::plan::held_elements(plan, entry, 10, 4), (rp::ElementRange{0, 10}));
}

}  // namespace
}  // namespace dc::driver
