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
constexpr double kMost = 64;         // factor of collectives, and its inverse the least
constexpr int kHalvings = 15;        // of the factor's logarithm: to 0.03 %
constexpr double kMostKernels = 64;  // as kMost, of kernels
constexpr int kRounds = 12;          // of either factor
constexpr double kExact = 1e-4, kNear = 1e-3, kOff = 0.01;  // parts of a time

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

double ratio(Nanos a, Nanos b) {
  return static_cast<double>(a.v) / static_cast<double>(std::max<int64_t>(b.v, 1));
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
  const auto with = [&](double kernels, double collectives) -> Status {
    result.kernels = kernels;
    result.collectives = collectives;
    result.measurements = multiplied(profile.measurements, kernels, collectives);
    DC_ASSIGN_OR_RETURN(result.calibrated,
                        predicted(plan, {result.measurements, profile.digest}, fused));
    return {};
  };
  result.calibrated = result.predicted;
  // What is not the profile's own, and what collectives slow, does not follow in proportion.
  const auto fit_kernels = [&] {
    for (int round = 0; round < kRounds && result.calibrated.compute.v > 0; ++round) {
      const double too_short = ratio(measured.compute, result.calibrated.compute);
      if (round > 0 && std::abs(too_short - 1) < kExact) break;
      const double kernels = std::clamp(result.kernels * too_short, 1 / kMostKernels, kMostKernels);
      DC_RETURN_IF_ERROR(with(kernels, result.collectives));
    }
    return base::ok_status();
  };
  const auto fit_collectives = [&] {
    double low = -std::log(kMost), high = std::log(kMost);
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = (low + high) / 2;
      DC_RETURN_IF_ERROR(with(result.kernels, std::exp(middle)));
      (result.calibrated.whole < measured.whole ? low : high) = middle;
    }
    return with(result.kernels, std::exp((low + high) / 2));
  };
  DC_RETURN_IF_ERROR(fit_kernels());
  result.are_hidden = !stands(measured) && !stands(result.calibrated);
  for (int round = 0; round < kRounds && !result.are_hidden; ++round) {
    DC_RETURN_IF_ERROR(fit_collectives());
    if (std::abs(ratio(measured.compute, result.calibrated.compute) - 1) < kNear) break;
    DC_RETURN_IF_ERROR(fit_kernels());
  }
  result.is_off =
      std::abs(ratio(measured.compute, result.calibrated.compute) - 1) > kOff ||
      (!result.are_hidden && std::abs(ratio(measured.whole, result.calibrated.whole) - 1) > kOff);
  return result;
}

}  // namespace dc::sim
