// Gathers of one phase become buckets: a bucket starts where its first member did, if the budget
// holds the later values earlier. Every member is waited for, and released, where it was. Returns
// how many joined another. `limit`: bytes of transients; empty: no budget.
#pragma once

#include <optional>

#include "src/schedule/bucket_policy.h"

namespace dc::schedule {

int join_gathers(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
                 std::optional<int64_t> limit, const BucketPolicy& belongs);

}  // namespace dc::schedule
