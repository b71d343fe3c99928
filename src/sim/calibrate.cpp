#include "src/sim/calibrate.h"

#include <algorithm>
#include <cmath>

#include "src/cost/costs.h"
#include "src/sim/what_if.h"

namespace dc::sim {
namespace {

using base::Measurements;
using base::Nanos;
using base::Result;
using base::Status;

// If compute waits for a smaller part of a step, the time of collectives does not matter.
constexpr double kHidden = 0.05;
constexpr double kMost = 8;    // factor of collectives, and its inverse the least
constexpr int kHalvings = 14;  // of the factor's logarithm: to 0.03 %
constexpr int kRounds = 12;    // for the factor of kernels, where an estimator has a part

void multiply(base::Timing& timing, double factor) {
  for (int64_t* const ns : {&timing.median_ns, &timing.fastest_ns, &timing.deviation_ns}) {
    if (*ns > 0) *ns = std::max<int64_t>(std::llround(factor * static_cast<double>(*ns)), 1);
  }
}
template <typename Row>
void multiply(std::vector<Row>& rows, double factor) {
  for (Row& row : rows) multiply(row.timing, factor);
}

Measurements multiplied(Measurements all, double kernels, double collectives) {
  all.origin = base::ProfileOrigin::Calibrated;
  all.step.reset();
  multiply(all.kernels, kernels);
  for (base::AloneMeasurement& row : all.alone) {
    multiply(row.warm, kernels);
    multiply(row.cold, kernels);
  }
  multiply(all.collectives, collectives);
  multiply(all.during_compute, collectives);
  multiply(all.together, collectives);
  return all;
}

Result<StepParts> predicted(const runtime::plan::Plan& plan, const profile::Profile& profile,
                            const std::shared_ptr<const cost::FusedEstimator>& fused) {
  const cost::Costs costs(profile, plan.threads, fused);
  DC_ASSIGN_OR_RETURN(const Simulated run, simulate(plan, costs.model()));
  const runtime::plan::Prediction& p = run.prediction;
  return StepParts{{p.step_ns}, {p.compute_ns + p.contention_ns}};
}

bool stands(const StepParts& parts) {
  return static_cast<double>((parts.whole - parts.compute).v) >
         kHidden * static_cast<double>(parts.whole.v);
}

}  // namespace

Result<Calibration> calibrate(const runtime::plan::Plan& plan, const profile::Profile& profile,
                              const base::StepMeasurement& step,
                              std::shared_ptr<const cost::FusedEstimator> fused) {
  const StepParts measured{{step.whole.median_ns}, {step.compute.median_ns}};
  Calibration result;
  DC_ASSIGN_OR_RETURN(result.predicted, predicted(plan, profile, fused));
  if (profile.measurements.kernels.empty() || result.predicted.compute.v <= 0) {
    return Status(base::ErrorKind::BadInput, "DC7104",
                  "the profile holds no measured kernels; make it with dcc profile");
  }
  if (measured.compute.v <= 0 || measured.whole < measured.compute) {
    return Status(base::ErrorKind::BadInput, "DC7104",
                  "the recorded step has no compute; record it again with dcrun --record-profile");
  }
  const auto times_too_short = [&](const StepParts& parts) {
    return static_cast<double>(measured.compute.v) / static_cast<double>(parts.compute.v);
  };
  result.kernels = times_too_short(result.predicted);
  const auto with = [&](double collectives) -> Result<StepParts> {
    result.measurements = multiplied(profile.measurements, result.kernels, collectives);
    return predicted(plan, {result.measurements, profile.digest}, fused);
  };
  DC_ASSIGN_OR_RETURN(result.calibrated, with(1));
  for (int round = 0; fused && round < kRounds && result.calibrated.compute.v > 0; ++round) {
    result.kernels *= times_too_short(result.calibrated);
    DC_ASSIGN_OR_RETURN(result.calibrated, with(1));
  }
  result.are_hidden = !stands(measured) && !stands(result.calibrated);
  if (result.are_hidden) return result;
  double low = -std::log(kMost), high = std::log(kMost);
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    DC_ASSIGN_OR_RETURN(const StepParts parts, with(std::exp(middle)));
    (parts.whole < measured.whole ? low : high) = middle;
  }
  result.collectives = std::exp((low + high) / 2);
  DC_ASSIGN_OR_RETURN(result.calibrated, with(result.collectives));
  return result;
}

}  // namespace dc::sim
