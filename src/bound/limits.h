// Limits: what weights of work no moment of a step can exceed.
//
// At any time compute has a rate (work done per time, every piece taken alone), and every stream
// and link has one, all at most 1. If sum_r w_r rate_r <= 1 at every moment, then T >= sum_r w_r
// work_r. With u, t, h the weights of Compute, Update, Head, q and f of Queue and Refresh, s of
// HostQueue, l those of the links of collectives, o those of the links of copies together:
//
// - Streams weighted, links of collectives not (a collective takes its stream at least as long).
//   Until the first gather ends no kernel runs that depends on it, so Compute and Head never go on
//   together; Queue and Refresh share a stream: max(u, h) + max(q, f) + s + o <= 1. After the norm
//   of all gradients no gradient is reduced and no kernel of the model runs that it depends on, so
//   no parameter is gathered for one: max(u, t) + f + o <= 1. Without clipping nothing waits for
//   the norm: then t counts as u in the first.
// - Links weighted, streams not (they may be several, and contention slows only wire). While a
//   collective uses a link and compute runs, compute is slower by at least `compute`, the smallest
//   factor of all collectives, and what its link carries by `collective`: v / compute + l /
//   collective + o <= 1, with v = max(u, t). Without a collective on a link: v + o <= 1. Without
//   compute: h + l + o <= 1. Several collectives on one link share its rate, so their sum is no
//   faster than the fastest.
#pragma once

#include "src/bound/relaxation.h"

namespace dc::bound {

struct Limits {
  bool one_queue = true;               // all collectives of one level share a stream
  bool has_barrier = false;            // updates wait for the norm of all gradients
  double compute = 1, collective = 1;  // smallest contention factors, at least 1

  bool contention() const { return compute > 1 && collective > 1; }
};

// Which resources may be weighted.
enum class Weighing : uint8_t { Streams, LinksInContention };

struct Norm {
  double value = 0;  // weights divided by it keep every limit
  Work slope;        // its derivative; `value` is the weights times it
};
Norm norm(const Work& weights, const Limits& limits, Weighing weighing);
bool may_weigh(Resource resource, const Limits& limits, Weighing weighing);

}  // namespace dc::bound
