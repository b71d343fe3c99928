// Allocation of a whole step: places state, transients and scratch, each in the arena of its memory
// space. The pass `layout-arenas` is this function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/base/units.h"
#include "src/cost/cost_model.h"
#include "src/ir/step.h"
#include "src/layout/known_arenas.h"

namespace dc::layout {

// Bytes that each space's arena may take on one rank; empty: no limit.
using Budgets = ir::PerSpace<std::optional<base::Bytes>>;

// Of the device's arena.
struct Allocation {
  base::Bytes state;  // end of the state entries, and of the inputs if several programs share them
  base::Bytes arena;  // state + the largest program
  base::Bytes live;   // state + the largest sum of live bytes in any program: no arena is smaller
  std::vector<std::string> algorithms;  // which one won, per program
};

// Sets offset and bytes of Value::location of values that own transient storage, of Node::scratch
// and of StateEntry::location, the arenas' sizes in the step, and the stage. An arena above its
// budget: OutOfMemory, DC7010, naming the index, the module and the largest values alive there.
// `allocation`, if given, receives the figures. `taken`: transients lie above that many bytes of
// the device's arena, even where the state ends below.
base::Status allocate(ir::Step& step, const cost::CostModel& costs, const Budgets& budgets = {},
                      Allocation* allocation = nullptr, base::Bytes taken = {});

// For callers that only ask whether a step fits. What `known` knows is not laid out again; null:
// all is. Returns the bytes of the device's arena that allocate() would make, or those of the first
// layout found that fits the budget. So the result exceeds the budget if and only if allocate()'s
// arena does, and then the two are equal.
base::Result<base::Bytes> device_arena(const ir::Step& step, const cost::CostModel& costs,
                                       base::Bytes budget, KnownArenas* known = nullptr);

// Nothing if every arena that allocate() would make keeps its budget; else the bytes of the
// device's, as device_arena() returns them. The device must have a budget.
base::Result<std::optional<base::Bytes>> arena_if_too_large(const ir::Step& step,
                                                            const cost::CostModel& costs,
                                                            const Budgets& budgets,
                                                            KnownArenas* known = nullptr);

// Whether every arena that allocate() would make keeps its budget. Nothing is laid out where the
// live bytes say no, or where no budget is.
base::Result<bool> fits(const ir::Step& step, const cost::CostModel& costs, const Budgets& budgets,
                        KnownArenas* known = nullptr);

}  // namespace dc::layout
