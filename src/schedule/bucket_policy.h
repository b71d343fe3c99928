// Which collectives travel together as one (a bucket: starts side by side, all but the first with
// joins=1).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "src/base/units.h"
#include "src/cost/cost_model.h"
#include "src/ir/step.h"

namespace dc::schedule {

// True if the collective `next` starts shall travel with a bucket of `bytes` that `first` opened.
using BucketPolicy =
    std::function<bool(const ir::Node& first, const ir::Node& next, base::Bytes bytes)>;

// A collective joins as long as the bucket's own time is less than fifty times what joining saves:
// latency is then about two percent of the link's time, and buckets stay small enough to be
// placed. With `most_bytes`, it joins while the bucket stays within them and joining costs no
// time.
BucketPolicy amortizes_latency(const ir::Step& step, const ir::Graph& graph,
                               const cost::CostModel& cost, std::optional<int64_t> most_bytes);

}  // namespace dc::schedule
