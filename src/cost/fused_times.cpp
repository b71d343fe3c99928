#include "src/cost/fused_times.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace dc::cost {

using base::KernelSignature;
using base::Nanos;

namespace {

Nanos rounded(double time) { return {static_cast<int64_t>(std::clamp(time, 1.0, 1e15))}; }

std::shared_ptr<const FusedEstimator> fitted(const std::vector<FusedSample>& samples) {
  if (samples.size() < FittedFused::kFewestSamples) return nullptr;
  return std::make_shared<const FittedFused>(samples);
}

// Too few kernels with reductions are in a profile.
std::optional<FusedKernel> learned_from(const KernelSignature& kernel, const KernelTime& apart) {
  std::optional<FusedKernel> described = describe_fused(kernel, apart);
  return described && described->reductions == 0 ? std::move(described) : std::nullopt;
}

}  // namespace

FusedTimes::FusedTimes(const base::Measurements& measured, const KernelTime& apart,
                       std::shared_ptr<const FusedEstimator> given)
    : warm_(std::move(given)) {
  if (measured.alone.empty()) {  // of an older profile, or of one with no fused kernel
    if (warm_) return;
    std::vector<FusedSample> samples;
    for (const base::KernelMeasurement& row : measured.kernels) {
      if (row.timing.median_ns <= 0) continue;
      if (auto kernel = learned_from(row.signature, apart))
        samples.push_back({*std::move(kernel), {row.timing.median_ns}});
    }
    warm_ = fitted(samples);
    return;
  }
  for (const base::AloneMeasurement& row : measured.alone) {
    if (row.warm.median_ns <= 0 || row.cold.fastest_ns <= 0) continue;
    // Cold there are few runs: the least of them was not disturbed.
    alone_[row.signature] = {
        static_cast<double>(row.warm.median_ns),
        static_cast<double>(std::max(row.warm.median_ns, row.cold.fastest_ns))};
  }
  find_coldness(measured.kernels);
  std::vector<FusedSample> warm, in_step;
  for (const base::AloneMeasurement& row : measured.alone) {
    const auto known = alone_.find(row.signature);
    if (known == alone_.end()) continue;
    auto kernel = learned_from(row.signature, apart);
    if (!kernel) continue;
    in_step.push_back({*kernel, rounded(between(known->second))});
    warm.push_back({*std::move(kernel), rounded(known->second.warm)});
  }
  fitted_warm_ = fitted(warm);
  fitted_in_step_ = fitted(in_step);
  if (!warm_) warm_ = fitted_warm_;
}

// That which makes the kernels measured both ways nearest, in the mean square of the errors, each
// over its kernel's time: long kernels count for more.
void FusedTimes::find_coldness(std::span<const base::KernelMeasurement> in_step) {
  double along = 0, square = 0;
  for (const base::KernelMeasurement& row : in_step) {
    const auto known = alone_.find(row.signature);
    if (known == alone_.end() || row.timing.median_ns <= 0) continue;
    const auto [warm, cold] = known->second;
    const auto time = static_cast<double>(row.timing.median_ns);
    const double added = cold - warm;
    along += added * (time - warm) / time;
    square += added * added / time;
  }
  if (square > 0) coldness_ = std::clamp(along / square, 0.0, 1.0);
}

std::optional<Nanos> FusedTimes::measured(const KernelSignature& kernel) const {
  const auto known = alone_.find(kernel);
  if (known == alone_.end()) return std::nullopt;
  return rounded(between(known->second));
}

Nanos FusedTimes::in_step(const FusedKernel& kernel) const {
  const Nanos warm = warm_->time(kernel);
  if (!fitted_warm_) return warm;
  const Nanos added = fitted_in_step_->time(kernel), of = fitted_warm_->time(kernel);
  return rounded(static_cast<double>(warm.v) * static_cast<double>(added.v) /
                 static_cast<double>(of.v));
}

}  // namespace dc::cost
