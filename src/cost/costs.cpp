#include "src/cost/costs.h"

namespace dc::cost {
namespace {

Rates rates_for(const std::optional<profile::Profile>& profile, int threads) {
  if (!profile || !profile->measurements.rates) return generic_cpu(threads);
  const base::Measurements& measured = profile->measurements;
  return rates_of(*measured.rates, measured.machine.cpu);
}

}  // namespace

Costs::Costs(const std::optional<profile::Profile>& profile, int threads)
    : table_(threads, rates_for(profile, threads)) {
  if (profile) profiled_.emplace(*profile, table_);
}

const CostModel& Costs::model() const {
  if (profiled_) return *profiled_;
  return table_;
}

}  // namespace dc::cost
