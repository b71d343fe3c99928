// Calibration: made-up runs whose kernels and collectives take so many times what the profile says.
#include "src/sim/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "runtime/plan/kernel_signature.h"
#include "src/cost/costs.h"
#include "src/driver/compile_step.h"
#include "src/frontend/import.h"
#include "src/sim/what_if.h"
#include "tests/source_dir.h"

namespace dc::sim {
namespace {

namespace rp = runtime::plan;
using testing::HasSubstr;

constexpr const char* kJustInTime = "";
constexpr const char* kOverlapped = ",bucket-reductions,prefetch-gathers,overlap-reductions";

rp::Plan compiled(const std::string& middle, const std::string& before = "",
                  const std::string& model = "mlp.pt2") {
  base::Result<ir::Step> step =
      frontend::import_archive(std::string(dc::kSourceDir) + "/tests/data/" + model);
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  driver::CompileOptions options;
  options.world = 4;
  options.own_passes = "normalize-graph," + before +
                       "shard-parameters=3,insert-collectives,add-update,schedule" + middle +
                       ",layout-arenas";
  const cost::Costs costs(std::nullopt, 1);
  base::Result<rp::Plan> plan = driver::compile_step(std::move(*step), options, costs.model());
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return std::move(*plan);
}

// Every kernel of the plan, and collectives that slow compute and are slowed. Times are multiplied.
profile::Profile profiled(const rp::Plan& plan, double kernels, double collectives) {
  profile::Profile profile;
  std::map<base::KernelSignature, int64_t> times;
  for (const rp::Program& program : plan.programs) {
    for (const rp::Instruction& in : program.instructions) {
      if (in.kind != rp::InstructionKind::Kernel) continue;
      const auto size = static_cast<int64_t>(times.size());
      times.emplace(rp::signature_of(plan, in), 2'000'000 + 100'000 * size);
    }
  }
  const auto times_of = [](int64_t ns, double factor) {
    return base::Timing{static_cast<int64_t>(static_cast<double>(ns) * factor), 1, 1, 9};
  };
  base::Measurements& all = profile.measurements;
  for (const auto& [kernel, ns] : times) all.kernels.push_back({kernel, times_of(ns, kernels), 64});
  for (const char* kind : {"all_gather", "all_reduce", "reduce_scatter"}) {
    for (int64_t bytes = 256; bytes <= 65536; bytes *= 16) {
      const int64_t ns = 5'000'000 + 1000 * bytes;
      all.collectives.push_back({kind, 4, bytes, times_of(ns, collectives)});
      all.during_compute.push_back({{kind, 4, bytes, times_of(2 * ns, collectives)}, 1300});
    }
  }
  all.copies.push_back({"host", "device", 4096, {77, 7, 7, 7}});
  return profile;
}

// The step that this profile foretells.
base::StepMeasurement run_of(const rp::Plan& plan, const profile::Profile& profile,
                             std::shared_ptr<const cost::FusedEstimator> fused = nullptr) {
  const cost::Costs costs(profile, 1, std::move(fused));
  const base::Result<Simulated> run = simulate(plan, costs.model());
  EXPECT_TRUE(run.ok()) << run.status().to_string();
  const rp::Prediction& p = run->prediction;
  return {"", {p.step_ns, 0, 0, 5}, {p.compute_ns + p.contention_ns, 0, 0, 5}};
}

TEST(Calibrate, FindsWhatMadeTheRunLonger) {
  for (const char* middle : {kJustInTime, kOverlapped}) {
    const rp::Plan plan = compiled(middle);
    for (const auto& [kernels, collectives] :
         std::vector<std::pair<double, double>>{{1, 1}, {1.3, 0.8}, {0.7, 2.5}}) {
      const base::StepMeasurement run = run_of(plan, profiled(plan, kernels, collectives));
      const auto found = calibrate(plan, profiled(plan, 1, 1), run);
      ASSERT_TRUE(found.ok()) << found.status().to_string();
      EXPECT_FALSE(found->are_hidden);
      const auto whole = static_cast<double>(run.whole.median_ns);
      EXPECT_NEAR(static_cast<double>(found->calibrated.whole.v), whole, 0.001 * whole);
      const auto compute = static_cast<double>(run.compute.median_ns);
      EXPECT_NEAR(static_cast<double>(found->calibrated.compute.v), compute, 0.001 * compute);
      EXPECT_FALSE(found->is_off);
      // Where both run concurrently, collectives that take longer slow compute for longer too.
      const double apart = middle == kJustInTime ? 0.001 : 0.02;
      EXPECT_NEAR(found->kernels, kernels, apart * kernels) << middle;
      EXPECT_NEAR(found->collectives, collectives, apart * collectives) << middle;
    }
  }
}

TEST(Calibrate, OnlyTimesOfKernelsAndCollectivesChange) {
  const rp::Plan plan = compiled(kJustInTime);
  const profile::Profile before = profiled(plan, 1, 1);
  const auto found = calibrate(plan, before, run_of(plan, profiled(plan, 1.5, 0.5)));
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  const base::Measurements &was = before.measurements, &is = found->measurements;
  EXPECT_EQ(is.origin, base::ProfileOrigin::Calibrated);
  ASSERT_EQ(is.kernels.size(), was.kernels.size());
  for (size_t i = 0; i < is.kernels.size(); ++i) {
    const auto ns = static_cast<double>(was.kernels[i].timing.median_ns);
    EXPECT_NEAR(static_cast<double>(is.kernels[i].timing.median_ns), 1.5 * ns, 0.001 * ns);
    EXPECT_EQ(is.kernels[i].signature, was.kernels[i].signature);
    EXPECT_EQ(is.kernels[i].scratch_bytes, 64);
  }
  ASSERT_EQ(is.during_compute.size(), was.during_compute.size());
  for (size_t i = 0; i < is.during_compute.size(); ++i) {
    // Twice as long concurrent with compute as alone, as before.
    EXPECT_NEAR(static_cast<double>(is.during_compute[i].timing.median_ns),
                2 * static_cast<double>(is.collectives[i].timing.median_ns), 2);
    EXPECT_EQ(is.during_compute[i].compute_permille, 1300);
  }
  EXPECT_EQ(is.copies[0].timing.median_ns, 77);
}

TEST(Calibrate, WhatComputeHidesIsLeftAsItIs) {
  const rp::Plan plan = compiled(kJustInTime);
  const auto found =
      calibrate(plan, profiled(plan, 1, 1e-3), run_of(plan, profiled(plan, 1.2, 2e-3)));
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_TRUE(found->are_hidden);
  EXPECT_DOUBLE_EQ(found->collectives, 1);
  EXPECT_NEAR(found->kernels, 1.2, 0.001);
}

TEST(Calibrate, ATimeThatNoFactorExplainsIsSaid) {
  const rp::Plan plan = compiled(kJustInTime);
  base::StepMeasurement run = run_of(plan, profiled(plan, 1, 1));
  run.whole.median_ns = run.compute.median_ns + 100 * (run.whole.median_ns - run.compute.median_ns);
  const auto found = calibrate(plan, profiled(plan, 1, 1), run);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_TRUE(found->is_off);
}

// Says the same of every kernel, whatever the profile says of its operations.
class SameForAll final : public cost::FusedEstimator {
 public:
  base::Nanos time(const cost::FusedKernel&) const override { return {3'000'000}; }
};

TEST(Calibrate, AnEstimatorOfFusedKernelsHasItsPartInTheStep) {
  const rp::Plan plan = compiled(kJustInTime, "fuse-elementwise,", "official_joint.pt2");
  const auto unmeasured = [&](double kernels) {
    profile::Profile profile = profiled(plan, kernels, 1);
    std::erase_if(profile.measurements.kernels, [](const base::KernelMeasurement& row) {
      return row.signature.provider() == base::Provider::Fused;
    });
    EXPECT_LT(profile.measurements.kernels.size(),
              profiled(plan, 1, 1).measurements.kernels.size());
    return profile;
  };
  const auto estimator = std::make_shared<const SameForAll>();
  const base::StepMeasurement run = run_of(plan, unmeasured(1.5), estimator);
  const auto found = calibrate(plan, unmeasured(1), run, estimator);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_NEAR(found->kernels, 1.5, 0.005);
  EXPECT_NEAR(static_cast<double>(found->calibrated.compute.v),
              static_cast<double>(run.compute.median_ns),
              0.001 * static_cast<double>(run.compute.median_ns));
  const auto without = calibrate(plan, unmeasured(1), run);
  ASSERT_TRUE(without.ok()) << without.status().to_string();
  EXPECT_NE(without->predicted.compute, found->predicted.compute);
}

TEST(Calibrate, WhatWasNotMeasuredIsRefused) {
  const rp::Plan plan = compiled(kJustInTime);
  const profile::Profile profile = profiled(plan, 1, 1);
  profile::Profile empty = profile;
  empty.measurements.kernels.clear();
  const base::StepMeasurement run = run_of(plan, profile);
  for (const auto& [what, status] : std::vector<std::pair<std::string, base::Status>>{
           {"dcc profile", calibrate(plan, empty, run).status()},
           {"--record-profile", calibrate(plan, profile, {}).status()},
           {"--record-profile", calibrate(plan, profile, {"", run.compute, run.whole}).status()}}) {
    EXPECT_EQ(status.kind(), base::ErrorKind::BadInput) << what;
    EXPECT_EQ(status.code(), "DC7104");
    EXPECT_THAT(status.sentence(), HasSubstr(what));
  }
}

}  // namespace
}  // namespace dc::sim
