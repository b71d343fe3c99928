// lower_bound: a step time that no plan of a model is below, whatever it chooses. Before any
// search, and with a proof: the weights and prices of a relaxation (relaxation.h).
//
// It holds for every plan in which
// - the model's kernels run in an order that the imported graph allows, on one stream; the backward
//   phase may run kernels of the forward phase again;
// - each parameter is placed as in one of the steps given: gathered for its uses, as often as the
//   plan likes, or whole all the time;
// - collectives travel alone or in buckets of one kind and group, state and values wait in the
//   spaces of Allowed::away or on the device, and at no time more than the budget is alive;
// - what is gathered from shards is gathered in the step that uses it;
// - updates run on compute, or, where state may wait on the host, there: what that takes is not
//   counted, but for the gradient's way there and the new value's way back.
// Left out, so that the bound may be low: the wait for the last reduction, the room that gathers
// and reductions under way take, and what else kernels that run again keep alive.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "src/bound/choices.h"
#include "src/bound/dual.h"

namespace dc::bound {

// The price of a byte at one instant, of each run of its program, in nanoseconds of the step time.
struct PricedInstant {
  int32_t program = 0;
  ir::NodeId node;  // of the gathered step
  double ns_per_byte = 0;
};

struct LowerBound {
  base::Nanos time;
  Work weights;                         // of each resource
  std::vector<PricedInstant> instants;  // in program order, those without a price too
  int evaluations = 0;                  // of the relaxation
  // The budget makes a step longer by a factor that means: there is no plan.
  bool is_out_of_reach = false;
};

// `gathered`: the step after `schedule` with every parameter in shards (ZeRO 3), nothing kept, made
// again or offloaded. `others`: the same step with other placements (ZeRO 2 and ZeRO 0). All with
// the same mesh, accumulation and order of reductions: the bound is for these. Deterministic.
// `sufficient`: a bound that is at most 0.02 % below need not be raised. `alike`: of the same model
// with other kernels or other groups, whose prices are a good beginning.
LowerBound lower_bound(const ir::Step& gathered, std::span<const ir::Step* const> others,
                       const cost::CostModel& cost, const Allowed& allowed,
                       base::Nanos sufficient = {INT64_MAX}, const LowerBound* alike = nullptr);

}  // namespace dc::bound
