// Reductions that compute does not wait for: the done half of each moves to where the reduction is
// expected to have ended.
//
// Walks a program forwards along the time that compute alone would take, with the link as a second
// resource that serves collectives in order. The done of a reduction, with the small kernels that
// depend on it, moves to the first position that compute reaches after the reduction's end, but
// never past a reader, and only as far as the budget allows: the gradient stays alive until its
// done. Kernels, collectives and the order of sums stay the same; so do all numbers.
#pragma once

#include <cstdint>
#include <optional>

#include "src/cost/cost_model.h"
#include "src/ir/step.h"

namespace dc::schedule {

// Returns how many reductions moved. `limit`: bytes of transients; empty: no budget. `most_bytes`:
// how many may be under way at once, as with a double-buffered bucket; a reduction above that
// starts when those before it are done. INT64_MAX: any number.
int defer_reductions(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
                     std::optional<int64_t> limit, int64_t most_bytes = INT64_MAX);

}  // namespace dc::schedule
