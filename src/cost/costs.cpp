#include "src/cost/costs.h"

#include <utility>

namespace dc::cost {
namespace {

Rates rates_for(const std::optional<profile::Profile>& profile, int threads) {
  if (!profile || !profile->measurements.rates) return generic_cpu(threads);
  const base::Measurements& measured = profile->measurements;
  return rates_of(*measured.rates, measured.machine.cpu);
}

}  // namespace

Costs::Costs(const std::optional<profile::Profile>& profile, int threads,
             std::shared_ptr<const FusedEstimator> fused)
    : table_(threads, rates_for(profile, threads)) {
  if (profile) profiled_.emplace(*profile, table_, std::move(fused));
}

const CostModel& Costs::model() const {
  if (profiled_) return *profiled_;
  return table_;
}

}  // namespace dc::cost
