// One entry of the step's state as the plan tells it: role, placement over the mesh, and what it
// holds before step 1.
#pragma once

#include "runtime/plan/plan.h"
#include "src/ir/step.h"

namespace dc::plan {

// A group, or the axes that a stride counts.
uint32_t plan_axes(const ir::Mesh& mesh, ir::AxisMask axes);

// Without its tensor, which the memory table gives.
runtime::plan::StateEntry emit_state_entry(const ir::Step& step, const ir::StateEntry& entry);

}  // namespace dc::plan
