// A plan's decisions, read off the plan and applied again for other worlds and accumulations.
#include "src/driver/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/driver/decisions.h"
#include "src/driver/frontier.h"
#include "tests/source_dir.h"

namespace dc::driver {
namespace {

using base::Bytes;
using base::ErrorKind;
using base::Result;
using base::Status;
using passes::ReductionOrder;
using runtime::plan::Plan;
using testing::HasSubstr;

CompileRequest request_for(int world, const std::string& chain = "auto") {
  CompileRequest request;
  request.model = std::string(dc::kSourceDir) + "/tests/data/mlp.pt2";
  request.options.world = world;
  request.options.chain = chain;
  return request;
}

Plan compiled(const CompileRequest& request) {
  Stopwatch watch;
  Result<CompileResult> made = compile(request, watch);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return std::move(made->plan);
}

ScalingRequest scaled(const Plan& plan, std::vector<int> worlds,
                      std::vector<int> accumulations = {}) {
  ScalingRequest request;
  request.compile.model = request_for(1).model;
  request.plan = plan;
  request.worlds = std::move(worlds);
  request.accumulations = std::move(accumulations);
  return request;
}

Result<Scaling> run(const ScalingRequest& request) {
  Stopwatch watch;
  return scaling(request, watch);
}

Scaling scaling_of(const ScalingRequest& request) {
  Result<Scaling> found = run(request);
  EXPECT_TRUE(found.ok()) << found.status().to_string();
  return std::move(*found);
}

// What the CLI makes of --passes.
CompileRequest with_chain_of(const Plan& plan, CompileRequest request, int world,
                             int accumulation) {
  request.options.world = world;
  request.options.accumulation = accumulation;
  request.options.chain = "auto";
  request.options.own_passes = plan.passes;
  return request;
}

TEST(Decisions, AreTheOptionsOfThePlan) {
  CompileRequest request = request_for(3, "zero2");
  request.options.accumulation = 2;
  request.options.threads = 4;
  request.options.reduce_dtype = ir::DType::BF16;
  request.options.passes.budgets[ir::Space::Device] = Bytes{1 << 20};
  request.options.passes.recompute = passes::Recompute::Off;
  const Plan plan = compiled(request);
  const Result<Decisions> decided = decisions_of(plan);
  ASSERT_TRUE(decided.ok()) << decided.status().to_string();
  CompileOptions expected = request.options;
  expected.chain = "auto";
  expected.own_passes = plan.passes;
  EXPECT_EQ(decided->options.canonical(), expected.canonical());
  EXPECT_EQ(decided->planned, Bytes{1 << 20});
}

TEST(Decisions, ASearchsOrderOfSumsIsOneByName) {
  for (const auto& [asked, decided] :
       {std::pair(ReductionOrder::ByStage, ReductionOrder::PerMicroBatch),
        std::pair(ReductionOrder::PerStep, ReductionOrder::PerStep),
        std::pair(ReductionOrder::PerMicroBatch, ReductionOrder::PerMicroBatch)}) {
    CompileRequest request = request_for(2);
    request.options.passes.reduction_order = asked;
    EXPECT_EQ(decisions_of(compiled(request))->options.passes.reduction_order, decided);
  }
  EXPECT_EQ(decisions_of(compiled(request_for(2, "zero1")))->options.passes.reduction_order,
            ReductionOrder::ByStage);
}

TEST(Decisions, WhatThePassesPlannedForIsInARemark) {
  CompileRequest request = request_for(2, "zero1");
  request.options.passes.budgets[ir::Space::Device] = Bytes{1 << 20};
  Plan plan = compiled(request);
  plan.remarks.push_back({"layout-arenas", "passes-planned-for", {}, {{"planned_bytes", 7}}});
  EXPECT_EQ(decisions_of(plan)->planned, Bytes{7});
  plan.remarks.back().numbers.clear();
  EXPECT_EQ(decisions_of(plan)->planned, std::nullopt);
}

TEST(Decisions, AnOptionOfAnotherVersionIsAMismatch) {
  Plan plan = compiled(request_for(2));
  for (const char* word : {"warp=9", "device=tpu", "threads=many", "nothing"}) {
    Plan other = plan;
    other.options += std::string(" ") + word;
    const Status status = decisions_of(other).status();
    EXPECT_EQ(status.code(), "DC7033") << word;
    EXPECT_EQ(status.kind(), ErrorKind::Mismatch);
    EXPECT_THAT(status.sentence(), HasSubstr(word));
  }
}

TEST(Scaling, ThePlansOwnRowIsItsPrediction) {
  for (const char* chain : {"auto", "zero0", "fsdp"}) {
    const Plan plan = compiled(request_for(4, chain));
    const Scaling found = scaling_of(scaled(plan, {}));
    ASSERT_EQ(found.rows.size(), 1u);
    EXPECT_EQ(found.rows[0].step, step_time(plan));
    EXPECT_EQ(found.rows[0].memory, device_memory(plan));
    EXPECT_EQ(found.base->step, step_time(plan));
    EXPECT_EQ(found.rows[0].efficiency, 1);
    EXPECT_FALSE(found.budget);
  }
}

TEST(Scaling, ARowIsThePlanThatTheChainMakesThere) {
  for (const char* chain : {"auto", "zero1", "fsdp"}) {
    CompileRequest request = request_for(4, chain);
    request.options.passes.reduction_order = ReductionOrder::PerMicroBatch;
    const Plan plan = compiled(request);
    const Scaling found = scaling_of(scaled(plan, {1, 3, 16}, {1, 4}));
    ASSERT_EQ(found.rows.size(), 6u);
    for (const ScalingRow& row : found.rows) {
      const Plan fresh = compiled(with_chain_of(plan, request, row.world, row.accumulation));
      EXPECT_TRUE(row.why.ok()) << row.why.to_string();
      EXPECT_EQ(row.step, step_time(fresh)) << chain << row.world;
      EXPECT_EQ(row.memory, device_memory(fresh)) << chain << row.world;
      const double rate = 1e9 * row.accumulation / static_cast<double>(row.step.v);
      const double base = 1e9 / static_cast<double>(step_time(plan).v);
      EXPECT_NEAR(row.efficiency, rate / base, 1e-9);
      EXPECT_NEAR(row.micro_batches_per_second(), rate * row.world, 1e-3);
    }
  }
}

TEST(Scaling, AWorldThatHostsDoNotDivideIsARowThatSaysSo) {
  CompileRequest request = request_for(4, "hsdp");
  request.options.passes.ranks_per_host = 2;
  const Scaling found = scaling_of(scaled(compiled(request), {2, 3, 8}));
  ASSERT_EQ(found.rows.size(), 3u);
  EXPECT_TRUE(found.rows[0].has_step());
  EXPECT_FALSE(found.rows[1].has_step());
  EXPECT_THAT(found.rows[1].why.sentence(), HasSubstr("hosts of equally many ranks"));
  EXPECT_TRUE(found.rows[2].has_step());
}

TEST(Scaling, ABudgetThatAWorldDoesNotKeepIsSaid) {
  CompileRequest request = request_for(8, "zero3");
  const Bytes most = device_memory(compiled(request));
  request.options.passes.budgets[ir::Space::Device] = most;
  const Plan plan = compiled(request);
  const Scaling found = scaling_of(scaled(plan, {8, 1}));
  EXPECT_EQ(found.budget, most);
  EXPECT_TRUE(found.rows[0].why.ok());
  EXPECT_EQ(found.rows[0].step, step_time(plan));
  EXPECT_EQ(found.rows[1].why.kind(), ErrorKind::OutOfMemory);
  EXPECT_TRUE(found.rows[1].has_step());
  EXPECT_GT(found.rows[1].memory, most);
  // Another budget takes its place.
  ScalingRequest larger = scaled(plan, {1});
  larger.compile.options.passes.budgets[ir::Space::Device] = found.rows[1].memory;
  const Scaling kept = scaling_of(larger);
  EXPECT_EQ(kept.budget, found.rows[1].memory);
  EXPECT_TRUE(kept.rows[0].why.ok()) << kept.rows[0].why.to_string();
}

TEST(Scaling, OfAnArchiveSearchesForEachRow) {
  ScalingRequest request;
  request.compile = request_for(1);
  request.worlds = {2, 4};
  const Scaling found = scaling_of(request);
  ASSERT_EQ(found.rows.size(), 2u);
  for (const ScalingRow& row : found.rows)
    EXPECT_EQ(row.step, step_time(compiled(request_for(row.world))));
  EXPECT_EQ(found.base->world, 2);
  EXPECT_EQ(found.rows[0].efficiency, 1);
}

TEST(Scaling, AFasterLinkIsForEachRow) {
  const Plan plan = compiled(request_for(4, "zero3"));
  ScalingRequest request = scaled(plan, {2, 4});
  const Scaling before = scaling_of(request);
  request.link_per_second = int64_t{1} << 50;
  const Scaling after = scaling_of(request);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_LT(after.rows[i].step, before.rows[i].step);
    EXPECT_LT(after.rows[i].exposed, before.rows[i].exposed);
  }
  EXPECT_EQ(after.base->step, after.rows[1].step);
}

TEST(Scaling, RefusesWhatIsNotOfThePlan) {
  const Plan plan = compiled(request_for(2));
  ScalingRequest foreign = scaled(plan, {4});
  foreign.compile.model = std::string(dc::kSourceDir) + "/tests/data/official_joint.pt2";
  const Status other = run(foreign).status();
  EXPECT_EQ(other.kind(), ErrorKind::Mismatch);
  EXPECT_EQ(other.code(), "DC7031");
  EXPECT_THAT(other.sentence(), HasSubstr(plan.model_digest));
  Plan trained = plan;
  trained.optimizer.clip = !trained.optimizer.clip;
  EXPECT_EQ(run(scaled(trained, {4})).status().code(), "DC7032");
  EXPECT_EQ(run(scaled(plan, {0})).status().kind(), ErrorKind::Usage);
  EXPECT_EQ(run(scaled(plan, {kMaxWorld + 1})).status().code(), "DC2801");
  EXPECT_EQ(run(scaled(plan, {4}, {0})).status().code(), "DC2801");
}

}  // namespace
}  // namespace dc::driver
