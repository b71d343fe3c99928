#include "src/search/certificate.h"

#include <string>
#include <vector>

#include "src/search/moves.h"
#include "src/search/starts.h"

namespace dc::search {
namespace {

using base::Result;

// Of the stages with this prefix.
Result<bound::LowerBound> bound_of(std::string_view prefix, std::string_view fuse,
                                   ScheduledSteps& steps, const ir::Step& imported,
                                   const cost::CostModel& cost, const bound::Allowed& allowed) {
  std::vector<ScheduledSteps::SharedStep> stages;
  for (const char* stage : {"3", "2", "0"}) {
    if (imported.mesh.world() == 1 && !stages.empty()) break;  // all the same
    DC_ASSIGN_OR_RETURN(
        const passes::Chain chain,
        passes::parse_passes(std::string(prefix) + "normalize-graph,fuse-loss,fuse-output-layer," +
                             std::string(fuse) + "shard-parameters=" + stage +
                             ",insert-collectives,add-update,schedule"));
    DC_ASSIGN_OR_RETURN(ScheduledSteps::SharedStep step, steps.scheduled(chain));
    stages.push_back(std::move(step));
  }
  std::vector<const ir::Step*> others;
  for (size_t i = 1; i < stages.size(); ++i) others.push_back(stages[i].get());
  return bound::lower_bound(*stages[0], others, cost, allowed);
}

}  // namespace

Result<bound::LowerBound> certificate(ScheduledSteps& steps, const ir::Step& imported,
                                      const passes::Options& options, const cost::CostModel& cost,
                                      size_t fusion) {
  const std::string_view fuse = kFusions[fusion];
  bound::Allowed allowed;
  allowed.budget = options.memory();
  if (options.offload_space) allowed.away = {*options.offload_space};
  allowed.recompute = options.recompute != passes::Recompute::Off;
  allowed.one_queue = false;  // separate-reductions
  DC_ASSIGN_OR_RETURN(bound::LowerBound least, bound_of("", fuse, steps, imported, cost, allowed));
  if (has_hosts(imported, options)) {
    DC_ASSIGN_OR_RETURN(bound::LowerBound by_host,
                        bound_of(kByHost, fuse, steps, imported, cost, allowed));
    if (by_host.time < least.time) return by_host;
  }
  return least;
}

}  // namespace dc::search
