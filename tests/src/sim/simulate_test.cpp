#include "src/sim/simulate.h"

#include <gtest/gtest.h>

#include "src/cost/fixed.h"
#include "tests/src/ir/sample_steps.h"

namespace dc::sim {
namespace {

// Two products; the second reads a gathered parameter. `order` says where the gather's start
// stands.
constexpr const char* kHead = R"(step @two stage=scheduled mesh=<dp=2> {
  input "x" : f32[4,8]
  parameter "w" : f32[8,8] placement=gathered_per_use gradient=sharded_each_micro_batch state=sharded shard=32
  state "w" : f32[32] flat_shard<dp> role=shard parameter="w"
  streams "compute" "comm"
  program @step {
    %x = input(name="x") : f32[4,8] varying<dp>
    %w = state(entry="w") : f32[32] flat_shard<dp>
)";
constexpr const char* kStart =
    "    %g = all_gather.start %w (elements=64, shard=32) : f32[8,8] stream=comm\n";
constexpr const char* kProduct = "    %t = aten.tanh.default(self=%x) : f32[4,8] varying<dp>\n";
constexpr const char* kTail = R"(    %f = all_gather.done %g : f32[8,8]
    %h = aten.mm.default(self=%t, mat2=%f) : f32[4,8] varying<dp>
    release %f
    %loss = aten.mean.default(self=%h) : f32[] varying<dp>
    output loss %loss
  }
}
)";

StepRun run(const std::string& text, const std::string& cost) {
  base::Result<ir::Step> step = ir::parse(text);
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  base::Result<cost::FixedCost> model = cost::parse_fixed_cost(cost);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return simulate(*step, *model);
}

std::string just_in_time() { return std::string(kHead) + kProduct + kStart + kTail; }
std::string early() { return std::string(kHead) + kStart + kProduct + kTail; }

TEST(Simulate, JustInTimeIsTheSumOfAllTimes) {
  const StepRun step = run(just_in_time(), "fixed(tanh=100us, mm=200us, all_gather=150us)");
  EXPECT_EQ(step.time.v, 450'000);
  EXPECT_EQ(step.exposed.v, 150'000);
  EXPECT_EQ(step.compute.v, 300'000);
  EXPECT_EQ(step.communication.v, 150'000);
}

TEST(Simulate, AnEarlyStartHidesWhatComputeCovers) {
  const StepRun step = run(early(), "fixed(tanh=100us, mm=200us, all_gather=150us)");
  EXPECT_EQ(step.time.v, 350'000);
  EXPECT_EQ(step.exposed.v, 50'000);
  const std::vector<Interval>& intervals = step.programs[0].intervals;
  ASSERT_EQ(intervals.size(), 4u);  // gather, tanh, mm, mean
  EXPECT_EQ(intervals[0].stream, 1);
  EXPECT_EQ(intervals[0].exposed.v, 50'000);
  EXPECT_EQ(intervals[1].begin.v, 0);
  EXPECT_EQ(intervals[2].begin.v, 150'000);
}

TEST(Simulate, ALinkThatIsBusyBindsTheStep) {
  const StepRun step = run(early(), "fixed(tanh=10us, mm=20us, all_gather=500us)");
  EXPECT_EQ(step.time.v, 520'000);
}

TEST(Simulate, TwoStreamsShareTheLinkAndKeepTheirLatencies) {
  const std::string text = R"(step @two stage=scheduled mesh=<dp=2> {
  state "a" : f32[32] flat_shard<dp> role=shard
  state "b" : f32[32] flat_shard<dp> role=shard
  streams "compute" "gather" "reduce"
  program @step {
    %a = state(entry="a") : f32[32] flat_shard<dp>
    %b = state(entry="b") : f32[32] flat_shard<dp>
    %ga = all_gather.start %a (elements=64, shard=32) : f32[8,8] stream=gather
    %gb = all_gather.start %b (elements=64, shard=32) : f32[8,8] stream=reduce
    %fa = all_gather.done %ga : f32[8,8]
    %fb = all_gather.done %gb : f32[8,8]
  }
}
)";
  const StepRun step = run(text, "fixed(all_gather=150us, latency=50us)");
  EXPECT_EQ(step.time.v, 250'000);
  EXPECT_EQ(step.exposed.v, 250'000);
  EXPECT_EQ(step.communication.v, 300'000);
  EXPECT_EQ(step.programs[0].busy[2].v, 250'000);
}

TEST(Simulate, CopiesHaveStreamsOfTheirOwn) {
  // The activation leaves after the mean, which nothing covers; its reload waits for nothing
  // either.
  const StepRun step = run(ir::kOffloaded, "fixed(mm=200us, mean=10us, copy=100us)");
  EXPECT_EQ(step.exposed.v, 400'000);
  EXPECT_EQ(step.time.v, 810'000);
  EXPECT_EQ(step.communication.v, 400'000);
  ASSERT_EQ(step.programs[0].busy.size(), 3u);
  EXPECT_EQ(step.programs[0].busy[1].v, 200'000);
  EXPECT_EQ(step.programs[0].busy[2].v, 200'000);
  std::string text = ir::kOffloaded;  // the copy of the moment starts before the last product
  const std::string start = "    %m0 = reload.start %m : f32[8,8] update stream=copy_in\n";
  text.erase(text.find(start), start.size());
  text.insert(text.find("    %gw = "), start);
  EXPECT_EQ(run(text, "fixed(mm=200us, mean=10us, copy=100us)").exposed.v, 300'000);
}

// A product, an update of its parameter, and the gather that makes it whole for the next step.
constexpr const char* kCrossing = R"(step @crossing stage=scheduled mesh=<dp=2> ACCUMULATION {
  input "x" : f32[4,8]
  parameter "w" : f32[8,8] shard=32
  state "w" : f32[8,8] parameter="w"
  state "shard.w" : f32[32] flat_shard<dp> role=shard parameter="w" range_of="w"
  streams "compute" "comm"
MICRO_BATCHES
  program @step {
    %x = input(name="x") : f32[4,8] varying<dp>
    %w = state(entry="w") : f32[8,8]
    %shard.w = state(entry="shard.w") : f32[32] flat_shard<dp>
    %t = aten.tanh.default(self=%x) : f32[4,8] varying<dp>
ARRIVED
    %h = aten.mm.default(self=%t, mat2=%w) : f32[4,8] varying<dp>
    zero %shard.w update
    %g = all_gather_into.start %w, %shard.w (elements=64, shard=32, spans_steps=1) : f32[8,8] update stream=comm
    %loss = aten.mean.default(self=%h) : f32[] varying<dp>
    output loss %loss
  }
}
)";
constexpr const char* kArrived = "    all_gather_into.wait_previous_step %w";

std::string crossing(const std::string& accumulation, const std::string& micro_batches,
                     const std::string& arrived) {
  std::string text = kCrossing;
  const auto put = [&](const std::string& mark, const std::string& what) {
    text.replace(text.find(mark), mark.size(), what);
  };
  put("ACCUMULATION", accumulation);
  put("MICRO_BATCHES", micro_batches);
  put("ARRIVED", arrived);
  return text;
}

constexpr const char* kTimes =
    "fixed(tanh=100us, mm=200us, mean=50us, zero=10us, all_gather=400us)";

TEST(Simulate, WhatCrossesTheEndOfTheStepIsAwaitedInTheNext) {
  const StepRun step = run(crossing("", "", kArrived), kTimes);
  // 50 us next to the mean, 100 next to the next step's tanh; 250 are left.
  EXPECT_EQ(step.exposed.v, 250'000);
  EXPECT_EQ(step.time.v, 610'000);
  EXPECT_EQ(step.communication.v, 400'000);
  const std::vector<Interval>& intervals = step.programs[0].intervals;
  ASSERT_EQ(intervals.size(), 5u);  // tanh, mm, zero, gather, mean
  EXPECT_EQ(intervals[1].begin.v, 350'000);
  EXPECT_EQ(intervals[3].exposed.v, 250'000);
  EXPECT_EQ(intervals[3].end.v - intervals[3].begin.v, 400'000);
}

TEST(Simulate, ArrivingTakesNoTimeOfItsOwn) {
  base::Result<ir::Step> step = ir::parse(crossing("", "", kArrived));
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  base::Result<cost::FixedCost> cost =
      cost::parse_fixed_cost("fixed(all_gather_into.wait_previous_step=7us)");
  ASSERT_TRUE(cost.ok()) << cost.status().to_string();
  const ir::Graph& graph = step->programs[0].graph;
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    if (graph.node(id).kind == ir::OpKind::AllGatherWaitPreviousStep) {
      EXPECT_EQ(node_time(*step, graph, graph.node(id), *cost).v, 0);
    }
  }
}

TEST(Simulate, OnlyTheFirstMicroBatchWaits) {
  const std::string micro_batch = std::string(R"(  program @accumulate repeat=2 {
    %x = input(name="x") : f32[4,8] varying<dp>
    %w = state(entry="w") : f32[8,8]
    %t = aten.tanh.default(self=%x) : f32[4,8] varying<dp>
)") + kArrived + R"(
    %h = aten.mm.default(self=%t, mat2=%w) : f32[4,8] varying<dp>
    %loss = aten.mean.default(self=%h) : f32[] varying<dp>
    output loss %loss
  })";
  const StepRun step = run(crossing("accumulation=3", micro_batch, ""), kTimes);
  EXPECT_EQ(step.exposed.v, 250'000);
  EXPECT_EQ(step.time.v, 600'000 + 350'000 + 360'000);
}

}  // namespace
}  // namespace dc::sim
