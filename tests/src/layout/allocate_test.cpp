#include "src/layout/allocate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "src/analysis/memory.h"
#include "src/cost/fixed.h"
#include "tests/src/analysis/small_steps.h"
#include "tests/src/ir/sample_steps.h"

namespace dc::layout {
namespace {

using ir::f32;
using ir::StateRole;
using ir::ValueId;

struct Small {
  Small() : b(2) {
    whole = b.entry("w", StateRole::Parameter, f32({50}), -1, 64);
    range = b.entry("shard.w", StateRole::Shard, f32({32}), whole);
    moment = b.entry("exp_avg.w", StateRole::Moment1, f32({32}));
    b.origin.module = "model.layer";
    ValueId x = b.input("x", f32({100}));
    a = b.aten("aten.relu.default", {x}, {"a", f32({1000})});
    c = b.aten("aten.mm.default", {a}, {"c", f32({500})});
    d = b.aten("aten.relu.default", {c}, {"d", f32({1000})});
    b.graph().outputs = {{ir::OutputKind::Loss, "", d}};
  }
  ir::Location at(ValueId value) { return b.graph().storage(value).location; }
  ir::StepBuilder b;
  int whole, range, moment;
  ValueId a, c, d;
};

TEST(Allocate, StateFirstThenTransientsThatShareRoom) {
  Small s;
  Allocation got;
  ASSERT_TRUE(allocate(s.b.step, *cost::parse_fixed_cost("fixed(mm=1us+1KiB)"), {}, &got).ok());
  const auto& state = s.b.step.state;
  EXPECT_EQ(state[0].location.offset, 0);
  EXPECT_EQ(state[0].location.bytes, 256);
  EXPECT_EQ(state[1].location.offset, 0);  // a range of the first
  EXPECT_EQ(state[2].location.offset, 256);
  EXPECT_EQ(got.state.v, 256 + 128);
  EXPECT_GE(s.at(s.a).offset, got.state.v);
  EXPECT_EQ(s.at(s.a).bytes, 4000);
  EXPECT_EQ(s.at(s.a).offset, s.at(s.d).offset);  // a is dead when d is born
  const ir::Location& scratch = s.b.graph().node(s.b.graph().value(s.c).producer).scratch;
  EXPECT_EQ(scratch.bytes, 1024);
  EXPECT_FALSE(scratch.offset < s.at(s.c).offset + 2000 &&
               s.at(s.c).offset < scratch.offset + 1024);
  EXPECT_EQ(s.b.step.arena_bytes[ir::Space::Device], got.arena.v);
  EXPECT_EQ(got.arena.v, got.state.v + 4032 + 2048 + 1024);
  EXPECT_EQ(got.live, got.arena);
  EXPECT_EQ(analysis::peak_memory(s.b.step).live, got.live);
  EXPECT_EQ(s.b.step.stage, ir::Stage::Allocated);
}

TEST(Allocate, AnswersWhetherAStepFitsAsTheAllocationWould) {
  const auto cost = cost::parse_fixed_cost("fixed(mm=1us+1KiB)");
  for (const int programs : {1, 2}) {
    Small s;
    if (programs == 2) s.b.step.programs.push_back(s.b.step.programs[0]);
    s.b.step.state.edit(2).location.space = ir::Space::Host;
    ir::Step allocated = s.b.step;
    ASSERT_TRUE(allocate(allocated, *cost).ok());
    const base::Bytes device{allocated.arena_bytes[ir::Space::Device]};
    const base::Bytes host{allocated.arena_bytes[ir::Space::Host]}, one{1};
    EXPECT_EQ(host.v, 128);
    EXPECT_TRUE(*fits(s.b.step, *cost, {}));
    EXPECT_TRUE(*fits(s.b.step, *cost, {device, host, base::Bytes{}}));
    EXPECT_FALSE(*fits(s.b.step, *cost, {device - one, host, {}}));
    EXPECT_FALSE(*fits(s.b.step, *cost, {device, host - one, {}}));
    EXPECT_EQ(*device_arena(s.b.step, *cost, device), device);
    EXPECT_EQ(*device_arena(s.b.step, *cost, base::Bytes{}), device);
    EXPECT_EQ(*arena_if_too_large(s.b.step, *cost, {device, host, base::Bytes{}}), std::nullopt);
    EXPECT_EQ(*arena_if_too_large(s.b.step, *cost, {device - one, host, {}}), device);
    EXPECT_EQ(*arena_if_too_large(s.b.step, *cost, {base::Bytes{}, host, {}}), device);
    EXPECT_EQ(*arena_if_too_large(s.b.step, *cost, {device, host - one, {}}), device);
  }
}

// Kernels of a few earlier values each, of many sizes.
ir::Step random_step(uint32_t seed) {
  std::mt19937 random(seed);
  ir::StepBuilder b(2);
  std::vector<ValueId> values = {b.aten("aten.zeros.default", {}, {"v", f32({16})})};
  for (int i = 0; i < 80; ++i) {
    ir::ValueList operands;
    for (const size_t reach : {size_t{3}, size_t{40}})
      operands.push_back(values[values.size() - 1 - random() % std::min(reach, values.size())]);
    const int64_t size = 16 * (1 + static_cast<int64_t>(random() % 64));
    values.push_back(b.aten("aten.add.Tensor", operands, {"v", f32({size})}));
  }
  b.graph().outputs = {{ir::OutputKind::Loss, "", values.back()}};
  return std::move(b.step);
}

TEST(Allocate, WhatIsTooLargeForSeveralProgramsIsAsLargeAsAsked) {
  const auto cost = cost::parse_fixed_cost("fixed()");
  int too_large = 0;
  for (uint32_t seed = 0; seed < 12; ++seed) {
    ir::Step step = random_step(2 * seed);
    step.programs.push_back(random_step(2 * seed + 1).programs[0]);
    Allocation best;
    ir::Step free = step;
    ASSERT_TRUE(allocate(free, *cost, {}, &best).ok());
    for (int64_t budget = best.live.v - 64; budget < best.arena.v; budget += 256) {
      ir::Step allocated = step;
      const Budgets budgets{base::Bytes{budget}, {}, {}};
      const bool kept = allocate(allocated, *cost, budgets).ok();
      const base::Bytes asked = *device_arena(step, *cost, base::Bytes{budget});
      EXPECT_EQ(kept, asked.v <= budget);
      if (kept) continue;
      ++too_large;
      EXPECT_EQ(allocated.arena_bytes[ir::Space::Device], asked.v) << seed << " at " << budget;
    }
  }
  EXPECT_GT(too_large, 12);
}

TEST(Allocate, ProgramsShareTheRoomAboveTheState) {
  Small s;
  ir::Program copy{s.b.graph(), 3};
  s.b.step.programs.insert(s.b.step.programs.begin(), std::move(copy));
  Allocation one, two;
  Small alone;
  ASSERT_TRUE(allocate(alone.b.step, *cost::parse_fixed_cost("fixed()"), {}, &one).ok());
  ASSERT_TRUE(allocate(s.b.step, *cost::parse_fixed_cost("fixed()"), {}, &two).ok());
  EXPECT_EQ(two.arena.v, one.arena.v + 448);  // the input keeps its place, for the loader
  auto input = [](const ir::Program& program) {
    return program.graph.storage(program.graph.node(program.graph.first()).results[0]).location;
  };
  const auto& programs = s.b.step.programs;
  EXPECT_EQ(input(programs[0]).offset, input(programs[1]).offset);
  EXPECT_EQ(input(programs[0]).offset, 384);
  EXPECT_EQ(two.live, analysis::peak_memory(s.b.step).live);
  EXPECT_EQ(two.algorithms.size(), 2u);
}

TEST(Allocate, OverTheBudgetNamesIndexModuleAndValues) {
  Small s;
  base::Status status = allocate(s.b.step, *cost::parse_fixed_cost("fixed(mm=1us+1KiB)"),
                                 {base::Bytes{7000}, {}, {}});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), "DC7010");
  EXPECT_EQ(base::exit_code(status.kind()), 80);
  EXPECT_NE(status.sentence().find("index 2 of program 'step'"), std::string::npos)
      << status.sentence();
  EXPECT_NE(status.sentence().find("aten.mm.default in module 'model.layer'"), std::string::npos)
      << status.sentence();
  EXPECT_NE(status.to_string().find("activations  a of model.layer"), std::string::npos)
      << status.to_string();
  EXPECT_NE(s.b.step.stage, ir::Stage::Allocated);
  Small exact;
  EXPECT_TRUE(allocate(exact.b.step, *cost::parse_fixed_cost("fixed(mm=1us+1KiB)"),
                       {base::Bytes{384 + 4032 + 2048 + 1024}, {}, {}})
                  .ok());
}

ir::Step offloaded() {
  base::Result<ir::Step> step = ir::parse(ir::kOffloaded);
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  return std::move(step).value();
}

TEST(Allocate, EachSpaceHasItsArena) {
  ir::Step step = offloaded();
  ASSERT_TRUE(allocate(step, *cost::parse_fixed_cost("fixed()")).ok());
  EXPECT_EQ(step.arena_bytes[ir::Space::Host], 256);  // exp_avg.w
  EXPECT_EQ(step.arena_bytes[ir::Space::Disk], 128);  // a copy of h
  const ir::Location& moment = step.state[1].location;
  EXPECT_EQ(moment.space, ir::Space::Host);
  EXPECT_EQ(moment.offset, 0);
  const ir::Graph& graph = step.programs[0].graph;
  const ir::Location& copy = graph.storage(graph.find_value("o0")).location;
  EXPECT_EQ(copy.space, ir::Space::Disk);
  EXPECT_EQ(copy.offset, 0);
  EXPECT_EQ(copy.bytes, 128);
  EXPECT_EQ(graph.storage(graph.find_value("r0")).location.space, ir::Space::Device);
  EXPECT_EQ(ir::verify(step, ir::Stage::Allocated).to_string(), "");
  EXPECT_EQ(analysis::peak_memory(step, {}, 8, ir::Space::Host).live.v, 256);
  EXPECT_EQ(analysis::peak_memory(step, {}, 8, ir::Space::Disk).live.v, 128);
  EXPECT_LE(analysis::peak_memory(step).live.v, step.arena_bytes[ir::Space::Device]);
  step.arena_bytes[ir::Space::Host] = 128;
  EXPECT_EQ(ir::verify(step, ir::Stage::Allocated).code(), "DC2313");
}

TEST(Allocate, EachSpaceHasItsBudget) {
  const auto cost = cost::parse_fixed_cost("fixed()");
  ir::Step step = offloaded();
  const base::Status host = allocate(step, *cost, {{{{}, base::Bytes{255}, {}}}});
  EXPECT_EQ(host.code(), "DC7010");
  EXPECT_NE(host.sentence().find("to the host needs 256 bytes and the budget is 255"),
            std::string::npos)
      << host.sentence();
  EXPECT_NE(host.to_string().find("exp_avg.w"), std::string::npos) << host.to_string();
  const base::Status disk = allocate(step, *cost, {{{{}, {}, base::Bytes{127}}}});
  EXPECT_NE(disk.sentence().find("--disk-memory"), std::string::npos) << disk.sentence();
  EXPECT_TRUE(allocate(step, *cost, {{{{}, base::Bytes{256}, base::Bytes{128}}}}).ok());
}

}  // namespace
}  // namespace dc::layout
