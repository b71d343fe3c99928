#include "src/sim/what_if.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "src/cost/costs.h"
#include "src/driver/compile_step.h"
#include "src/frontend/import.h"
#include "tests/source_dir.h"

namespace dc::sim {
namespace {

namespace rp = runtime::plan;
using testing::HasSubstr;

constexpr const char* kBegin =
    "normalize-graph,shard-parameters=3,insert-collectives,add-update,schedule";

// A profile with collectives that cost compute something, so that every rule of the machine counts.
std::optional<profile::Profile> contending() {
  profile::Profile profile;
  for (const char* kind : {"all_gather", "all_reduce", "reduce_scatter"}) {
    for (int64_t bytes = 256; bytes <= 65536; bytes *= 16) {
      profile.measurements.collectives.push_back({kind, 4, bytes, {5000 + bytes, 0, 0, 9}});
      profile.measurements.during_compute.push_back(
          {{kind, 4, bytes, {6000 + 2 * bytes, 0, 0, 9}}, 1300});
    }
  }
  return profile;
}

// The same, and a fast link inside each of two hosts.
std::optional<profile::Profile> of_two_hosts() {
  std::optional<profile::Profile> profile = contending();
  for (const char* kind : {"all_gather", "all_reduce", "reduce_scatter"}) {
    for (int64_t bytes = 256; bytes <= 65536; bytes *= 16) {
      using Level = base::CollectiveLevel;
      std::vector<base::CollectiveMeasurement>& rows = profile->measurements.collectives;
      rows.push_back({kind, 2, bytes, {500 + bytes / 10, 0, 0, 9}, Level::Inside});
      rows.push_back({kind, 2, bytes, {9000 + 2 * bytes, 0, 0, 9}, Level::Across});
    }
  }
  return profile;
}

rp::Plan compiled(const std::string& passes, const cost::CostModel& cost, int accumulation = 1) {
  base::Result<ir::Step> step =
      frontend::import_archive(std::string(dc::kSourceDir) + "/tests/data/mlp.pt2");
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  driver::CompileOptions options;
  options.world = 4;
  options.accumulation = accumulation;
  options.own_passes = passes;
  base::Result<rp::Plan> plan = driver::compile_step(std::move(*step), options, cost);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return std::move(*plan);
}

std::string chain(const std::string& middle) {
  return kBegin + (middle.empty() ? "" : "," + middle) + ",layout-arenas";
}

Simulated simulated(const rp::Plan& plan, const cost::CostModel& cost, const WhatIf& what_if = {}) {
  base::Result<Simulated> run = simulate(plan, cost, what_if);
  EXPECT_TRUE(run.ok()) << run.status().to_string();
  return run.ok() ? *run : Simulated{};
}

// The plan's groups say over which links each collective goes.
TEST(WhatIf, APlanOfHostsIsTheCompilersOwnPrediction) {
  const cost::Costs costs(of_two_hosts(), 1);
  for (const char* middle :
       {"", "fuse-gathers,bucket-reductions,prefetch-gathers,overlap-reductions"}) {
    for (int accumulation : {1, 3}) {
      const rp::Plan plan =
          compiled("split-by-host=2," + chain(middle), costs.model(), accumulation);
      ASSERT_EQ(plan.mesh.size(), 2U);
      const rp::Prediction &then = plan.prediction, now = simulated(plan, costs.model()).prediction;
      EXPECT_EQ(now.step_ns, then.step_ns) << middle;
      EXPECT_EQ(now.communication_ns, then.communication_ns) << middle;
      EXPECT_EQ(now.contention_ns, then.contention_ns) << middle;
      EXPECT_EQ(now.bounds_ns[1], then.bounds_ns[1]) << middle;
      const rp::Plan flat = compiled(chain(middle), costs.model(), accumulation);
      EXPECT_LT(then.communication_ns, flat.prediction.communication_ns) << middle;
    }
  }
}

TEST(WhatIf, NothingChangedIsTheCompilersOwnPrediction) {
  for (const auto& profile : {std::optional<profile::Profile>(), contending()}) {
    const cost::Costs costs(profile, 1);
    for (const char* middle :
         {"", "prefetch-gathers,overlap-reductions",
          "fuse-gathers,bucket-reductions,prefetch-gathers,overlap-reductions", "keep-resident",
          "offload-update,overlap-reductions,offload-gradients"}) {
      for (int accumulation : {1, 3}) {
        const rp::Plan plan = compiled(chain(middle), costs.model(), accumulation);
        const rp::Prediction &then = plan.prediction,
                             now = simulated(plan, costs.model()).prediction;
        EXPECT_GT(then.step_ns, 0);
        EXPECT_EQ(now.step_ns, then.step_ns) << middle;
        EXPECT_EQ(now.compute_ns, then.compute_ns) << middle;
        EXPECT_EQ(now.communication_ns, then.communication_ns) << middle;
        EXPECT_EQ(now.contention_ns, then.contention_ns) << middle;
        EXPECT_EQ(now.bounds_ns[0], then.bounds_ns[0]) << middle;
        EXPECT_EQ(now.bounds_ns[1], then.bounds_ns[1]) << middle;
        EXPECT_EQ(now.bounds_ns[3], then.bounds_ns[3]) << middle;
        EXPECT_EQ(now.without_norm_ns, then.without_norm_ns) << middle;
        EXPECT_EQ(now.figures_ns, then.figures_ns) << middle;
        EXPECT_LE(now.bounds_ns[2], now.step_ns) << middle;  // within the arena it has
      }
    }
  }
}

TEST(WhatIf, ALinkHasItsRateAndKeepsItsLatency) {
  const cost::Costs costs(std::nullopt, 1);
  const rp::Plan plan = compiled(chain(""), costs.model());
  const Simulated as_is = simulated(plan, costs.model());
  WhatIf slow, fast;
  slow.link_per_second = 1'000'000;
  fast.link_per_second = 1'000'000'000'000'000;
  const Simulated slower = simulated(plan, costs.model(), slow);
  const Simulated fastest = simulated(plan, costs.model(), fast);
  EXPECT_LT(fastest.prediction.step_ns, as_is.prediction.step_ns);
  EXPECT_LT(as_is.time_with_faster_link.v, as_is.prediction.step_ns);
  EXPECT_GT(as_is.time_with_faster_link.v, fastest.prediction.step_ns);
  // Just in time: compute, and every collective by itself.
  int64_t collectives = 0, sent = 0;
  for (const rp::Instruction& in : plan.programs[0].instructions) {
    if (in.kind != rp::InstructionKind::Collective) continue;
    ++collectives;
    for (const rp::CollectiveBuffer& b : in.buffers) {
      const rp::Tensor& wire = plan.tensors[static_cast<size_t>(b.input)];
      sent += b.elements * base::byte_size(wire.dtype) / 4 * 3;
    }
  }
  EXPECT_EQ(fastest.prediction.step_ns, as_is.prediction.compute_ns + collectives * 20'000);
  EXPECT_NEAR(static_cast<double>(slower.prediction.step_ns - fastest.prediction.step_ns),
              static_cast<double>(sent) * 1000, 1000.0 * collectives * 4);
  EXPECT_EQ(slower.link_per_second, 1'000'000);
}

TEST(WhatIf, WhatIsPartOfThePlanCannotBeChanged) {
  const cost::Costs costs(std::nullopt, 1);
  const rp::Plan plan = compiled(chain(""), costs.model());
  WhatIf same, other, small;
  same.world = 4;
  same.memory = base::Bytes{plan.arena_bytes[0] + 4096};
  EXPECT_EQ(simulated(plan, costs.model(), same).memory.v, plan.arena_bytes[0] + 4096);
  other.world = 8;
  const base::Status world = simulate(plan, costs.model(), other).status();
  EXPECT_EQ(world.kind(), base::ErrorKind::BadConfig);
  EXPECT_THAT(world.sentence(), HasSubstr("--world 8"));
  small.memory = base::Bytes{plan.arena_bytes[0] - 1};
  const base::Status memory = simulate(plan, costs.model(), small).status();
  EXPECT_EQ(memory.kind(), base::ErrorKind::OutOfMemory);
  EXPECT_THAT(memory.sentence(), HasSubstr(std::to_string(plan.arena_bytes[0])));
}

rp::Instruction instruction(rp::InstructionKind kind, int32_t stream, int32_t event) {
  rp::Instruction in;
  in.kind = kind, in.stream = stream, in.event = event;
  return in;
}

// `count` kernels from `index` on, each on another stream, one after the other while compute waits.
rp::Plan on_other_streams(rp::Plan plan, size_t index, int32_t count) {
  std::vector<rp::Instruction>& list = plan.programs[0].instructions;
  std::vector<rp::Instruction> chain;
  int32_t before = 0;
  const auto hand_to = [&](int32_t stream) {
    chain.push_back(instruction(rp::InstructionKind::Signal, before, plan.events));
    chain.push_back(instruction(rp::InstructionKind::Wait, stream, plan.events++));
    before = stream;
  };
  for (int32_t i = 0; i < count; ++i) {
    plan.streams.push_back(plan.streams.back());
    hand_to(static_cast<int32_t>(plan.streams.size()) - 1);
    chain.push_back(list[index + static_cast<size_t>(i)]);
    chain.back().stream = before;
  }
  hand_to(0);
  const auto first = list.begin() + static_cast<std::ptrdiff_t>(index);
  list.insert(list.erase(first, first + count), chain.begin(), chain.end());
  plan.programs[0].duration_ns.clear();
  return plan;
}

TEST(WhatIf, KernelsOfOtherStreamsTakeTheirTimeWhileComputeWaits) {
  const cost::Costs costs(std::nullopt, 1);
  const rp::Plan plan = compiled(chain("prefetch-gathers,overlap-reductions"), costs.model());
  const Simulated as_is = simulated(plan, costs.model());
  const std::vector<rp::Instruction>& list = plan.programs[0].instructions;
  int moved = 0;
  for (size_t i = 0; i + 1 < list.size(); ++i) {
    for (int32_t count : {1, 2}) {
      const bool are_kernels =
          std::all_of(list.begin() + static_cast<std::ptrdiff_t>(i),
                      list.begin() + static_cast<std::ptrdiff_t>(i) + count,
                      [](const auto& in) { return in.kind == rp::InstructionKind::Kernel; });
      if (!are_kernels) continue;
      const Simulated other = simulated(on_other_streams(plan, i, count), costs.model());
      const int64_t time = as_is.prediction.compute_ns - other.prediction.compute_ns;
      EXPECT_GE(time, 0);
      EXPECT_EQ(other.prediction.step_ns, as_is.prediction.step_ns) << i;
      EXPECT_EQ(other.exposed.v, as_is.exposed.v + time) << i;
      EXPECT_EQ(other.prediction.communication_ns, as_is.prediction.communication_ns) << i;
      EXPECT_LE(other.prediction.bounds_ns[1], other.prediction.step_ns) << i;
      moved += time > 0 ? count : 0;
    }
  }
  EXPECT_GT(moved, 20);
}

TEST(WhatIf, AWaitOfAnotherStreamForAnEarlierRunIsRefused) {
  const cost::Costs costs(std::nullopt, 1);
  rp::Plan plan = compiled(chain(""), costs.model());
  std::vector<rp::Instruction>& list = plan.programs[0].instructions;
  list.insert(list.begin(), instruction(rp::InstructionKind::Wait, 1, plan.events++));
  const base::Status status = simulate(plan, costs.model()).status();
  EXPECT_EQ(status.kind(), base::ErrorKind::Unsupported);
  EXPECT_EQ(status.code(), "DC7101");
  EXPECT_THAT(status.sentence(), HasSubstr("waits for an earlier run"));
}

}  // namespace
}  // namespace dc::sim
