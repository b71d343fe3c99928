// Allocation of a whole step: places state, transients and scratch in the device arena. The pass
// `layout-arenas` is this function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/base/units.h"
#include "src/cost/cost_model.h"
#include "src/ir/step.h"

namespace dc::layout {

struct Allocation {
  base::Bytes state;  // end of the state entries, and of the inputs if several programs share them
  base::Bytes arena;  // state + the largest program
  base::Bytes live;   // state + the largest sum of live bytes in any program: no arena is smaller
  std::vector<std::string> algorithms;  // which one won, per program
};

// Sets Value::location of values that own transient storage, Node::scratch, StateEntry::location,
// Step::arena_bytes and the stage. An arena above the budget: OutOfMemory, DC7010, naming the
// index, the module and the largest values alive there. `allocation`, if given, receives the
// figures.
base::Status allocate(ir::Step& step, const cost::CostModel& costs,
                      std::optional<base::Bytes> budget = {}, Allocation* allocation = nullptr);

}  // namespace dc::layout
