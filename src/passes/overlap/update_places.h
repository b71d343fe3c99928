// Where the fragments of an update go.
#pragma once

#include <vector>

#include "src/passes/overlap/update_fragments.h"

namespace dc::passes {

struct UpdatePlace {
  // Index of the node before which the parts go; that node belongs to no fragment. The number of
  // nodes means the end of the program.
  int32_t position = 0;
  const UpdateFragment* fragment = nullptr;
  bool update = false, gather = false;  // what of it
};

// The result is in program order, with each part of a fragment once; parts at one position keep
// their order. Simulates compute and the queue of each stream of collectives, inside hosts and
// across them, which slow compute; compute waits for a reduction only where the update needs it.
// Where the gathers' stream is free long enough not to delay the last collective of any stream, a
// parameter is updated and its gather starts. Where compute waits for the last
// reductions, parameters are updated. The rest comes last, in the order in which the next step
// needs it, each gather right behind its update. `at_once`: every update as soon as it is ready,
// all gathers last.
std::vector<UpdatePlace> place_updates(const ir::Step& step, const schedule::TimeAxis& axis,
                                       const cost::CostModel& cost,
                                       const std::vector<UpdateFragment>& fragments, bool at_once);

}  // namespace dc::passes
