#include "src/sim/what_if.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/cost/costs.h"
#include "src/driver/compile_step.h"
#include "src/frontend/import.h"

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
          {kind, 4, bytes, {6000 + 2 * bytes, 0, 0, 9}, 1300});
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
      frontend::import_archive(std::string(DC_SOURCE_DIR) + "/tests/data/mlp.pt2");
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
          "fuse-gathers,bucket-reductions,prefetch-gathers,overlap-reductions", "keep-resident"}) {
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
  int collectives = 0;
  int64_t sent = 0;
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

TEST(WhatIf, OtherOrdersOfStreamsAreRefused) {
  const cost::Costs costs(std::nullopt, 1);
  rp::Plan plan = compiled(chain(""), costs.model());
  for (rp::Instruction& in : plan.programs[0].instructions) {
    if (in.kind != rp::InstructionKind::Kernel) continue;
    in.stream = 1;
    break;
  }
  const base::Status status = simulate(plan, costs.model()).status();
  EXPECT_EQ(status.kind(), base::ErrorKind::Unsupported);
  EXPECT_EQ(status.code(), "DC7101");
  EXPECT_THAT(status.sentence(), HasSubstr("concurrent with compute"));
}

}  // namespace
}  // namespace dc::sim
