// Values of the forward phase as further results of kernels of the backward phase.
#pragma once

#include <set>
#include <span>
#include <vector>

#include "src/passes/fuse/elementwise_groups.h"
#include "src/passes/fuse/make_again.h"

namespace dc::passes {

// A value of the forward phase that other than element-wise kernels of the backward phase read, as
// the gradient of a weight does, is made again in one of `groups` of that phase if all that its
// operator takes is there: copies of `again` (make_again.h), one of the group's at least, and what
// is read there or later. That costs one more result to store, and the original dies in the forward
// phase. Readers that come before the group are moved behind it, where nothing else needs them
// earlier and what lives longer for that is no larger than the value.
std::vector<MadeAgain> make_further_results(ir::Graph& graph, std::span<const MadeAgain> again,
                                            std::vector<ElementwiseGroup> groups,
                                            const std::set<ir::ValueId>& but_not = {});

}  // namespace dc::passes
