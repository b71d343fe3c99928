#include "src/search/certificate.h"

#include <algorithm>
#include <string>
#include <vector>

#include "src/search/moves.h"
#include "src/search/opening.h"
#include "src/search/starts.h"

namespace dc::search {
namespace {

using base::Result;

Result<passes::Chain> stage(std::string_view prefix, std::string_view fuse, const char* zero) {
  return passes::parse_passes(std::string(prefix) + DC_OPENING + std::string(fuse) +
                              "shard-parameters=" + zero +
                              ",insert-collectives,add-update,schedule");
}

// Of the stages with this prefix.
Result<bound::LowerBound> bound_of(std::string_view prefix, std::string_view fuse,
                                   ScheduledSteps& steps, const ir::Step& imported,
                                   const cost::CostModel& cost, const bound::Allowed& allowed,
                                   base::Nanos sufficient, const bound::LowerBound* alike) {
  std::vector<SharedStep> stages;
  for (const char* zero : {"3", "2", "0"}) {
    if (imported.mesh.world() == 1 && !stages.empty()) break;  // all the same
    DC_ASSIGN_OR_RETURN(const passes::Chain chain, stage(prefix, fuse, zero));
    DC_ASSIGN_OR_RETURN(SharedStep step, steps.scheduled(chain));
    stages.push_back(std::move(step));
  }
  std::vector<const ir::Step*> others;
  for (size_t i = 1; i < stages.size(); ++i) others.push_back(stages[i].get());
  return bound::lower_bound(*stages[0], others, cost, allowed, sufficient, alike);
}

}  // namespace

Result<bound::LowerBound> certificate(ScheduledSteps& steps, const ir::Step& imported,
                                      const passes::Options& options, const cost::CostModel& cost,
                                      size_t fusion, base::Nanos sufficient,
                                      const bound::LowerBound* alike) {
  const std::string_view fuse = kFusions[fusion];
  bound::Allowed allowed;
  allowed.budget = options.memory();
  if (options.offload_space) allowed.away = {*options.offload_space};
  allowed.recompute = options.recompute != passes::Recompute::Off;
  allowed.one_queue = false;  // separate-reductions
  DC_ASSIGN_OR_RETURN(bound::LowerBound least,
                      bound_of("", fuse, steps, imported, cost, allowed, sufficient, alike));
  if (has_hosts(imported, options)) {
    DC_ASSIGN_OR_RETURN(bound::LowerBound by_host, bound_of(kByHost, fuse, steps, imported, cost,
                                                            allowed, sufficient, &least));
    if (by_host.time < least.time) return by_host;
  }
  return least;
}

base::Status Certificates::find(const std::vector<size_t>& fusions, ScheduledSteps& steps,
                                const ir::Step& imported, const passes::Options& options,
                                const cost::CostModel& cost) {
  std::map<size_t, bound::LowerBound> found;
  base::Nanos least{INT64_MAX};
  const bound::LowerBound* before = nullptr;
  for (const size_t fusion : fusions) {
    bound::LowerBound& one = found[fusion];
    DC_ASSIGN_OR_RETURN(one, certificate(steps, imported, options, cost, fusion, least, before));
    // A time that means there is no plan is none to stop at.
    if (one.is_out_of_reach) continue;
    least = std::min(least, one.time);
    before = &one;
  }
  found_ = std::move(found);
  return {};
}

base::Nanos Certificates::least() const {
  base::Nanos least{INT64_MAX};
  for (const auto& [fusion, found] : found_) least = std::min(least, found.time);
  return least;
}

bool Certificates::is_out_of_reach() const {
  return !found_.empty() && std::all_of(found_.begin(), found_.end(),
                                        [](const auto& one) { return one.second.is_out_of_reach; });
}

std::optional<bound::LowerBound> Certificates::of(size_t fusion) const {
  const auto found = found_.find(fusion);
  return found == found_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace dc::search
