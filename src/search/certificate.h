// certificate: the lower bound over choices (src/bound) of a model, from the passes that every
// chain begins with.
#pragma once

#include "src/bound/bound.h"
#include "src/passes/pass_manager.h"

namespace dc::search {

// Of every plan of `imported` (as passes::run_passes takes it) that chains can make with these
// options, in the order of reductions that they say; if they say none of the two, of both. Where
// ranks share hosts, of sharding over all ranks and inside hosts.
base::Result<bound::LowerBound> certificate(const ir::Step& imported,
                                            const passes::Options& options,
                                            const cost::CostModel& cost);

}  // namespace dc::search
