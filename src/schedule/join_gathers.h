// Gathers of one phase become buckets. A bucket starts where its first member did, so the values
// of the later members are allocated earlier; a gather joins only if that fits the budget. Every
// member is still waited for, and released, where it was. Returns how many gathers joined another.
// `limit`: bytes of transients; empty: no budget.
#pragma once

#include <optional>

#include "src/schedule/bucket_policy.h"

namespace dc::schedule {

int join_gathers(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
                 std::optional<int64_t> limit, const BucketPolicy& belongs);

}  // namespace dc::schedule
