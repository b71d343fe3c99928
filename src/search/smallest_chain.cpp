#include "src/search/smallest_chain.h"

#include <algorithm>

#include "src/search/chains.h"
#include "src/search/moves.h"
#include "src/search/starts.h"

namespace dc::search {
namespace {

using passes::Chain;
using passes::ReductionOrder;

bool has_offloading(const Chain& chain) {
  return std::any_of(chain.begin(), chain.end(), offloads);
}

}  // namespace

void offer_smallest(const std::vector<Chain>& chains, ScheduledSteps& steps, SmallestPlans& plans,
                    const passes::Options& options, std::optional<SmallestChain>& best) {
  // What shards least comes first in the list and has most state.
  for (auto at = chains.rbegin(); at != chains.rend(); ++at) {
    const Chain& chain = *at;
    if (best && !has_offloading(chain)) {
      const base::Result<int64_t> state = steps.state_bytes(chain);
      if (!state.ok() || *state >= best->bytes) continue;
      const base::Result<int64_t> live = steps.least_live(chain);
      if (live.ok() && *live >= best->bytes) continue;
    }
    const std::optional<SmallestPlan>& found = plans.of(chain);
    if (!found || (best && best->bytes <= found->bytes)) continue;
    best = {chain, options, found->bytes};
    best->options.budgets[ir::Space::Device] = found->planned;
  }
}

const std::optional<SmallestPlan>& SmallestPlans::of(const Chain& chain) {
  const auto [found, is_new] = known_.try_emplace(passes::print(chain));
  if (is_new) {
    int64_t least = INT64_MAX;
    found->second = smallest_plan([&](const PlannedMemory& planned) -> std::optional<int64_t> {
      const base::Result<ir::Step> made = steps_.made({chain, planned});
      if (!made.ok()) return std::nullopt;
      // No layout has fewer bytes than are live: then none is asked for.
      const int64_t live = live_bytes(*made, cost_);
      if (live > least && (!planned || live > planned->v)) return live;
      const base::Result<base::Bytes> arena = steps_.arena(*made);
      if (!arena.ok()) return std::nullopt;
      least = std::min(least, arena->v);
      return arena->v;
    });
  }
  return found->second;
}

bool may_run(const Chain& chain, const ir::Step& imported, const passes::Options& options) {
  if (!options.offload_space && has_offloading(chain)) return false;
  return has_hosts(imported, options) || std::none_of(chain.begin(), chain.end(), splits_by_host);
}

std::vector<Chain> chains_with_text(const ir::Step& imported, const passes::Options& options) {
  std::vector<Chain> chains;
  for (const std::span<const NamedChain> list : {named_chains(), baseline_chains()}) {
    for (const NamedChain& named : list) {
      const base::Result<Chain> chain = find_chain(named.name);
      if (chain.ok() && may_run(*chain, imported, options)) chains.push_back(*chain);
    }
  }
  const auto add = [&](const std::string& text) {
    const base::Result<Chain> chain = passes::parse_passes(text);
    if (chain.ok()) chains.push_back(*chain);
  };
  for (const std::string_view start : kJointStarts) add(std::string(start));
  if (!options.offload_space) return chains;
  for (const Start& start : kOffloadStarts) add(std::string(start.begin).append(start.rest));
  return chains;
}

std::optional<SmallestChain> find_smallest(const ir::Step& imported, const passes::Options& options,
                                           const cost::CostModel& cost) {
  passes::Options decided = options;
  const bool any = options.reduction_order == ReductionOrder::Any;
  if (any || options.reduction_order == ReductionOrder::ByStage)
    decided.reduction_order = ReductionOrder::PerMicroBatch;
  const std::vector<Chain> chains = chains_with_text(imported, options);
  std::optional<SmallestChain> best;
  const auto offer = [&] {
    ScheduledSteps steps(imported, decided, cost);
    SmallestPlans plans(steps, cost);
    offer_smallest(chains, steps, plans, decided, best);
  };
  offer();
  if (any && imported.accumulation > 1) {
    decided.reduction_order = ReductionOrder::PerStep;
    offer();
  }
  return best;
}

}  // namespace dc::search
