// BucketRule: when a collective joins the bucket before it.
#pragma once

#include "src/passes/pass.h"
#include "src/passes/time_axis.h"

namespace dc::passes {

// With a most size (the argument of the pass): while the bucket stays within it and joining costs
// no time. Without: as long as the bucket's own time is less than fifty times what joining saves,
// so that latency comes to about two percent of the link's time and buckets stay small enough to
// be placed.
struct BucketRule {
  std::optional<int64_t> most_bytes;
  bool joins(base::Bytes together, base::Nanos bucket, base::Nanos next, base::Nanos fused) const {
    const int64_t saved = bucket.v + next.v - fused.v;
    if (most_bytes) return together.v <= *most_bytes && saved >= 0;
    return saved > 0 && bucket.v < 50 * saved;
  }
};

}  // namespace dc::passes
