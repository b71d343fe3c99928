// The smallest plans of the chains that have a text: the named ones, the starts that decide jointly
// and those that offload.
//
// None of them depends on a budget. So what find_smallest() returns is one answer for all budgets,
// and a search that tries the same at its end has a plan for each budget that is at least as large.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/search/scheduled_steps.h"
#include "src/search/smallest_plan.h"

namespace dc::search {

// Of chains, each worked out once.
class SmallestPlans {
 public:
  // The references must outlive it.
  SmallestPlans(ScheduledSteps& steps, const cost::CostModel& cost) : steps_(steps), cost_(cost) {}

  // Empty if the chain makes no plan.
  const std::optional<SmallestPlan>& of(const passes::Chain& chain);

 private:
  bool is_known_to_exceed(const Candidate& candidate, int64_t least);

  ScheduledSteps& steps_;
  const cost::CostModel& cost_;
  std::map<std::string, std::optional<SmallestPlan>> known_;  // by the chain's text
};

// Whether a search may try the chain for this step under these options.
bool may_run(const passes::Chain& chain, const ir::Step& imported, const passes::Options& options);
// Those that it may try.
std::vector<passes::Chain> chains_with_text(const ir::Step& imported,
                                            const passes::Options& options);

struct SmallestChain {
  passes::Chain chain;
  passes::Options options;  // those given, with what was decided: the bytes to plan for too
  int64_t bytes = 0;        // of the arena
};

// Offers the smallest plans of `chains`, and of the smallest with its operators fused as keeps
// least, under the options that `steps` and `plans` were made for.
void offer_smallest(const std::vector<passes::Chain>& chains, ScheduledSteps& steps,
                    SmallestPlans& plans, const passes::Options& options,
                    std::optional<SmallestChain>& best);

// The smallest of all; empty if none makes a plan. The device's budget does not count.
std::optional<SmallestChain> find_smallest(const ir::Step& imported, const passes::Options& options,
                                           const cost::CostModel& cost);

}  // namespace dc::search
