// Costs: the cost model that a command uses, with what it stands on.
#pragma once

#include <optional>

#include "src/cost/analytic.h"
#include "src/cost/profiled.h"

namespace dc::cost {

// From a profile, and where it knows nothing from its rates; without a profile, or without rates in
// it, from a generic CPU.
class Costs {
 public:
  Costs(const std::optional<profile::Profile>& profile, int threads);
  Costs(const Costs&) = delete;
  Costs& operator=(const Costs&) = delete;

  const CostModel& model() const;

 private:
  AnalyticCost table_;
  std::optional<ProfiledCost> profiled_;
};

}  // namespace dc::cost
