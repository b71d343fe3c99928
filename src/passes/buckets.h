// Making buckets: starts that stand side by side and travel as one collective (joins=1). Which ones
// belong together is said by whoever asks.
#pragma once

#include <functional>

#include "src/passes/pass.h"
#include "src/passes/time_axis.h"

namespace dc::passes {

// True if the collective `next` starts shall travel with a bucket of `bytes` that `first` opened.
using Belongs = std::function<bool(const ir::Node& first, const ir::Node& next, base::Bytes bytes)>;

// As long as a bucket's own time is less than fifty times what joining it saves, so that latency
// comes to about two percent of the link's time and buckets stay small enough to be placed; or,
// with `most_bytes`, while the bucket stays within them and joining costs no time.
Belongs worth_it(const ir::Step& step, const ir::Graph& graph, const cost::CostModel& cost,
                 std::optional<int64_t> most_bytes);

// Both return how many joined another. `limit`: bytes of transients.
//
// Gathers of one phase: the bucket starts where its first member did, if the budget holds the later
// values earlier. Every member is waited for, and released, where it was.
int join_gathers(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
                 std::optional<int64_t> limit, const Belongs& belongs);
// Reductions: the bucket starts where its last member did, if the budget holds the earlier
// gradients until then; the done halves and what stands on them follow in their old order.
int join_reductions(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
                    std::optional<int64_t> limit, const Belongs& belongs);

}  // namespace dc::passes
