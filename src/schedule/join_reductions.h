// Reductions become buckets: a bucket starts where its last member did, if the budget holds the
// earlier gradients until then; the done halves and what stands on them follow in their old order.
// Returns how many joined another. `limit`: bytes of transients; empty: no budget.
#pragma once

#include <optional>

#include "src/schedule/bucket_policy.h"

namespace dc::schedule {

int join_reductions(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
                    std::optional<int64_t> limit, const BucketPolicy& belongs);

}  // namespace dc::schedule
