// Reductions become buckets. A bucket starts where its last member did, so the earlier gradients
// live until then; a reduction joins only if that fits the budget. The done halves and the nodes
// that depend on them follow in their old order. Returns how many reductions joined another.
// `limit`: bytes of transients; empty: no budget.
#pragma once

#include <optional>

#include "src/schedule/bucket_policy.h"

namespace dc::schedule {

int join_reductions(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
                    std::optional<int64_t> limit, const BucketPolicy& belongs);

}  // namespace dc::schedule
