// Costs: the cost model that a command uses, with what it stands on.
#pragma once

#include <memory>
#include <optional>

#include "src/cost/analytic.h"
#include "src/cost/profiled.h"

namespace dc::cost {

// The cost model of a compilation. Times come from the profile. What it did not measure is
// estimated from the profile's rates. Without a profile, or without rates in it, the rates are
// those of a generic CPU.
class Costs {
 public:
  // `fused`: as of ProfiledCost; without a profile it counts for nothing.
  Costs(const std::optional<profile::Profile>& profile, int threads,
        std::shared_ptr<const FusedEstimator> fused = nullptr);
  Costs(const Costs&) = delete;
  Costs& operator=(const Costs&) = delete;

  const CostModel& model() const;

 private:
  AnalyticCost table_;
  std::optional<ProfiledCost> profiled_;
};

}  // namespace dc::cost
