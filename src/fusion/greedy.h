// Rules that decide one thing after the other, to compare a search over both with.
#pragma once

#include <cstdint>

#include "src/fusion/draft.h"
#include "src/fusion/timeline.h"

namespace dc::fusion {

// Every kernel, in the order in which they may run, is fused with the groups before it, the last
// first, as far as that is allowed: XLA's instruction fusion. Nothing is copied. How many groups
// went.
int fuse_in_order(Draft& draft);

// Reductions in the order in which their gradients are complete, into buckets.
// UpTo: a bucket is closed before it would have more than `most` bytes (XLA's combiner).
// Past: when it has `most` bytes or more; the first has `first` or more (PyTorch's DDP).
enum class Closing : uint8_t { UpTo, Past };
// Returns how many joined another.
int merge_in_order(Draft& draft, Order order, Closing closing, base::Bytes most, base::Bytes first);

}  // namespace dc::fusion
