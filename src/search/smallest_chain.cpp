#include "src/search/smallest_chain.h"

#include <algorithm>

#include "src/search/chains.h"
#include "src/search/moves.h"
#include "src/search/starts.h"

namespace dc::search {
namespace {

using passes::Chain;
using passes::ReductionOrder;

// By the bytes that are live in the plan for almost nothing, or by state where that alone is more
// than some other has live; what is not known comes first.
std::vector<const Chain*> smallest_first(const std::vector<Chain>& chains, ScheduledSteps& steps) {
  std::vector<std::pair<int64_t, const Chain*>> order;
  int64_t least = INT64_MAX;
  // What shards least comes first in the list and has most state.
  for (auto chain = chains.rbegin(); chain != chains.rend(); ++chain) {
    int64_t bytes = 0;
    if (const base::Result<int64_t> state = steps.state_bytes(*chain); state.ok()) bytes = *state;
    if (any_offloads(*chain)) bytes = 0;
    if (bytes > 0 && bytes < least) {
      const base::Result<LiveFloor> floor = steps.live_floor(*chain);
      bytes = floor.ok() ? floor->planned_least : 0;
      if (bytes > 0) least = std::min(least, bytes);
    }
    order.emplace_back(bytes, &*chain);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const Chain*> result;
  result.reserve(order.size());
  for (const auto& [bytes, chain] : order) result.push_back(chain);
  return result;
}

// Its plan for almost nothing is not smaller, and none that keeps to a part in kSmallestPlanParts
// less.
bool cannot_be_smaller(const LiveFloor& floor, int64_t bytes) {
  return floor.least >= bytes ||
         (floor.planned_least >= bytes && floor.least > bytes - bytes / kSmallestPlanParts);
}

// Its operators fused as keeps least for the backward; empty if it has no other way.
Chain keeps_least(const Chain& chain, ScheduledSteps& steps, const passes::Options& options) {
  if (options.providers == passes::Providers::Aten) return {};  // only native kernels are fused
  const base::Result<std::vector<size_t>> fusions = steps.different_fusions();
  if (!fusions.ok()) return {};
  for (const size_t fusion : {kKeepsLeast, kKeepsLess}) {
    if (std::ranges::count(*fusions, fusion) != 0)
      return fusion == fusion_of(chain) ? Chain() : fused(chain, fusion);
  }
  return {};
}

}  // namespace

void offer_smallest(const std::vector<Chain>& chains, ScheduledSteps& steps, SmallestPlans& plans,
                    const passes::Options& options, std::optional<SmallestChain>& best) {
  const auto offer = [&](const Chain& chain) {
    const std::optional<SmallestPlan>& found = plans.of(chain);
    if (!found || (best && best->bytes <= found->bytes)) return;
    best = {chain, options, found->bytes};
    best->options.budgets[ir::Space::Device] = found->planned;
  };
  for (const Chain* chain : smallest_first(chains, steps)) {
    if (best && !any_offloads(*chain)) {
      const base::Result<int64_t> state = steps.state_bytes(*chain);
      if (!state.ok() || *state >= best->bytes) continue;
      const base::Result<LiveFloor> floor = steps.live_floor(*chain);
      if (floor.ok() && cannot_be_smaller(*floor, best->bytes)) continue;
    }
    offer(*chain);
  }
  if (const Chain less = best ? keeps_least(best->chain, steps, options) : Chain(); !less.empty())
    offer(less);
}

const std::optional<SmallestPlan>& SmallestPlans::of(const Chain& chain) {
  const auto [found, is_new] = known_.try_emplace(passes::print(chain));
  if (is_new) {
    int64_t least = INT64_MAX;
    found->second = smallest_plan([&](const PlannedMemory& planned) -> std::optional<int64_t> {
      if (least < INT64_MAX && is_known_to_exceed({chain, planned}, least)) return least + 1;
      const base::Result<ir::Step> made = steps_.made({chain, planned});
      if (!made.ok()) return std::nullopt;
      // No layout has fewer bytes than are live: then none is asked for.
      const int64_t live = live_bytes(*made, cost_);
      if (live > least && (!planned || live > planned->v)) return live;
      const base::Result<bool> keeps = steps_.keeps_budgets_outside(*made);
      if (!keeps.ok() || !*keeps) return std::nullopt;
      const base::Result<base::Bytes> arena = steps_.arena(*made);
      if (!arena.ok()) return std::nullopt;
      least = std::min(least, arena->v);
      return arena->v;
    });
  }
  return found->second;
}

// One that is planned for less than the chain surely has live does not keep to that; by how little
// it may be smaller than another, which was planned for nothing, is not worth its making.
bool SmallestPlans::is_known_to_exceed(const Candidate& candidate, int64_t least) {
  if (candidate.planned) {
    const base::Result<int64_t> live = steps_.least_live(candidate.chain);
    return live.ok() && *live > candidate.planned->v;
  }
  const base::Result<int64_t> live = steps_.least_live_without_limit(candidate.chain);
  return live.ok() && *live > least;
}

bool may_run(const Chain& chain, const ir::Step& imported, const passes::Options& options) {
  if (!options.offload_space && any_offloads(chain)) return false;
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
