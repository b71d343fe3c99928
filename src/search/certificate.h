// certificate: the lower bound over choices (src/bound) of a model, from the stages that every
// chain begins with.
#pragma once

#include "src/bound/bound.h"
#include "src/search/scheduled_steps.h"

namespace dc::search {

// Of every plan that chains can make of the steps' model with these options, which are the steps'
// own but for the budgets; they say in which order gradients are summed. `fusion`: how those chains
// fuse operators (kFusions). Where ranks share hosts, of sharding over all ranks and inside hosts.
base::Result<bound::LowerBound> certificate(ScheduledSteps& steps, const ir::Step& imported,
                                            const passes::Options& options,
                                            const cost::CostModel& cost, size_t fusion);

}  // namespace dc::search
