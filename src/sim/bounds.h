// Bounds: step times that no schedule of the same work beats. The work is fixed (kernels,
// collectives, the stream of each), its order is not; programs run one after the other. All four
// hold for this repository's simulator by construction; a plan that reaches with_contention needs
// no search.
//
// - full_overlap: the busiest stream or link of each program, as if nothing had to wait.
//
// - with_ends: full_overlap, and the work that must come before the first and after the last piece
//   of work of a resource. The first gathers hide behind nothing, nor do the last reduction and
//   the update after it. For each resource it is the largest value over all subsets of its work of
//   (earliest begin) + (sum of times) + (least time after the end). Jackson's preemptive schedule
//   finds it (J. R. Jackson, "An extension of Johnson's results on job lot scheduling", Naval
//   Research Logistics Quarterly 3, 1956; J. Carlier, "The one-machine sequencing problem", EJOR
//   11, 1982).
//
// - within_memory: with_ends under a memory budget, if the kernels of forward and backward keep
//   their order. A gather can run ahead of its use only where the budget leaves room next to what
//   must be alive.
//
// - with_contention: with_ends with measured contention, that is, how transfers and compute slow
//   each other while they overlap. The work overlaps as much as pays.
//
// - without_norm: with_ends as if no update waited for the norm of all gradients. The others but
//   full_overlap contain that wait, where the step has one; the difference is what it costs.
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
