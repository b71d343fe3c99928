// certificate: the lower bound over choices (src/bound) of a model, from the stages that every
// chain begins with.
#pragma once

#include <map>

#include "src/bound/bound.h"
#include "src/search/scheduled_steps.h"

namespace dc::search {

// Of every plan that chains can make of the steps' model with these options, which are the steps'
// own but for the budgets; they say in which order gradients are summed. `fusion`: how those chains
// fuse operators (kFusions). Where ranks share hosts, of sharding over all ranks and inside hosts.
// `sufficient`, `alike`: as bound::lower_bound() takes them.
base::Result<bound::LowerBound> certificate(ScheduledSteps& steps, const ir::Step& imported,
                                            const passes::Options& options,
                                            const cost::CostModel& cost, size_t fusion,
                                            base::Nanos sufficient = {INT64_MAX},
                                            const bound::LowerBound* alike = nullptr);

// Those of a search, by the ways of fusing that it may choose.
class Certificates {
 public:
  // Finds each of `fusions`; as certificate(). Those that are not the lowest are raised only until
  // they are near the lowest before them. An error ends it.
  base::Status find(const std::vector<size_t>& fusions, ScheduledSteps& steps,
                    const ir::Step& imported, const passes::Options& options,
                    const cost::CostModel& cost);

  bool are_found() const { return !found_.empty(); }
  // Of whatever is chosen: the lowest.
  base::Nanos least() const;
  bool is_out_of_reach() const;
  std::optional<bound::LowerBound> of(size_t fusion) const;

 private:
  std::map<size_t, bound::LowerBound> found_;
};

}  // namespace dc::search
