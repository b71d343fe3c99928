// Where the fragments of an update go.
#pragma once

#include <vector>

#include "src/passes/overlap/update_fragments.h"

namespace dc::passes {

struct UpdatePlace {
  // Before the node there, which is of no fragment; the number of nodes: at the end.
  int32_t position = 0;
  const UpdateFragment* fragment = nullptr;
  bool update = false, gather = false;  // what of it
};

// In program order, each fragment's parts once, those at one position in the order given. Compute
// is walked forwards concurrently with the link, which slows it, as if it waited for a reduction
// only where the update needs it. Where the link has time, so that the last collective is not
// delayed, a parameter is updated and its gather started; where compute waits for the last
// reductions, parameters are updated. What is left comes last, in the order in which the next step
// needs it, each gather right behind its update. `at_once`: every update where it is ready, all
// gathers last.
std::vector<UpdatePlace> place_updates(const ir::Step& step, const schedule::TimeAxis& axis,
                                       const cost::CostModel& cost,
                                       const std::vector<UpdateFragment>& fragments, bool at_once);

}  // namespace dc::passes
