// FusedTimes: what a profile knows of fused kernels. Measured alone, their figures are in two
// states of the caches, warm and cold; in a step a kernel's operands lie partly in caches. How far
// the profile's model is from warm to cold is one number of the profile: of those kernels that were
// measured in a step too.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

#include "src/base/measurements.h"
#include "src/cost/fitted_fused.h"
#include "src/cost/fused_kernel.h"

namespace dc::cost {

class FusedTimes {
 public:
  // `apart`: of native kernels. `given`: estimates in place of what is fitted; null: none. Fits to
  // the kernels measured alone, or, of a profile that has none, to those measured in a step; not if
  // there are fewer than FittedFused::kFewestSamples.
  FusedTimes(const base::Measurements& measured, const KernelTime& apart,
             std::shared_ptr<const FusedEstimator> given);

  // Whether any fused kernel can be estimated.
  bool knows_any() const { return warm_ != nullptr; }
  // Of a kernel that was measured alone, in a step of the profile's model.
  std::optional<base::Nanos> measured(const base::KernelSignature& kernel) const;
  // Of any other; this and alone() require knows_any().
  base::Nanos in_step(const FusedKernel& kernel) const;
  base::Nanos alone(const FusedKernel& kernel) const { return warm_->time(kernel); }

 private:
  struct Alone {
    double warm = 0, cold = 0;  // ns, cold no less than warm
  };
  double between(const Alone& alone) const {
    return alone.warm + coldness_ * (alone.cold - alone.warm);
  }
  void find_coldness(std::span<const base::KernelMeasurement> in_step);

  std::unordered_map<base::KernelSignature, Alone, base::KernelSignatureHash> alone_;
  double coldness_ = 0.5;  // 0: as warm, 1: as cold
  std::shared_ptr<const FusedEstimator> warm_;
  // Fitted to the same kernels: what a step adds to warm times is their ratio. Null: nothing.
  std::shared_ptr<const FusedEstimator> fitted_warm_, fitted_in_step_;
};

}  // namespace dc::cost
