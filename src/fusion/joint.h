// Fusions and buckets decided together by steps that only go down: every fusion is judged by the
// time that it has with the buckets that are best for it.
#pragma once

#include <cstdint>
#include <span>

#include "src/fusion/draft.h"
#include "src/fusion/timeline.h"

namespace dc::fusion {

// Gives a draft the buckets with which all has ended first, of those that are runs of reductions in
// the order in which their gradients are complete, or leaves it as it is if that is not slower.
// With reductions of one kind on one channel, and T = C x + D, no other buckets are better: a
// bucket waits for its last gradient, so it may as well take all that are complete before. Dynamic
// programming, quadratic in the number of reductions.
Timeline join_best(Draft& draft, const LinearTime& collective, Order order);

struct JointRules {
  bool copies = true;              // also fuses copies
  int64_t most_work = 15'000'000;  // kernels played, in all
};

struct Joint {
  Draft best;
  Timeline timeline;
  int64_t played = 0;      // drafts
  bool has_ended = false;  // no single fusion of `best` helps
};

// From each of the starts, with its best buckets: in rounds every fusion of two groups is tried on
// its own, and those that helped are made, the best first, as far as each still helps. What helps:
// less time, or as much and less computing. A start is left when a round brings nothing, or when
// its share of `most_work` is done. Never worse than any start, of which there is at least one.
Joint improve(std::span<const Draft> starts, const LinearTime& collective, Order order,
              const JointRules& rules);

// improve() from `none`, where nothing is fused; from fuse_in_order(); from DisCo's search with its
// constants; and from three shorter ones: without copies, and with changes of at most one and five
// moves.
Joint decide_jointly(const Draft& none, const LinearTime& collective, Order order);

}  // namespace dc::fusion
