// Bounds: step times that no schedule of the same work beats. The work is fixed (kernels,
// collectives, the stream of each), its order is not; programs run one after the other. All four
// hold for this repository's simulator by construction; a plan that reaches with_contention needs
// no search.
//
//   full_overlap  full overlap: the busiest stream or link of each program, as if nothing had to
//   wait. with_ends  full_overlap with its ends: what must come before the first and after the last
//   piece of work of a
//       resource. The first gathers hide behind nothing, nor do the last reduction and the update
//       behind it. For each resource it is the largest over all subsets of its work of (earliest
//       begin) + (sum of times) + (least time after the end), found by Jackson's preemptive
//       schedule (J. R. Jackson, "An extension of Johnson's results on job lot scheduling", Naval
//       Research Logistics Quarterly 3, 1956; J. Carlier, "The one-machine sequencing problem",
//       EJOR 11, 1982).
//   within_memory  with_ends under a memory budget, if the kernels of forward and backward keep
//   their order: a gather
//       can only run ahead of its use where the budget leaves room next to what must be alive.
//   with_contention  with_ends with measured contention: what transfers and compute cost each other
//   while they overlap,
//       overlapping as much as pays.
//
// with_ends to with_contention contain the wait for the norm of all gradients, where the step has
// one; `without_norm` is with_ends as if no update waited for it, so that the difference is what
// the barrier costs.
#pragma once

#include <optional>

#include "src/sim/workload.h"

namespace dc::sim {

struct Bounds {
  base::Nanos full_overlap, with_ends, within_memory, with_contention;
  base::Nanos without_norm;

  Bounds& operator+=(const Bounds& other);
  Bounds operator*(int64_t count) const;
  bool operator==(const Bounds&) const = default;
};

// `room`: what transients and workspace may take on the device; empty: no budget, within_memory is
// with_ends.
Bounds bounds(const Workload& workload, std::optional<base::Bytes> room = {});

// Of a whole step, repeats included, under a budget of device memory. The step must be scheduled.
Bounds bounds(const ir::Step& step, const cost::CostModel& cost,
              std::optional<base::Bytes> budget = {});

}  // namespace dc::sim
