// An update writes the parameter's copy on the device. Where the copy lives elsewhere, a kernel of
// its own makes the same numbers.
#pragma once

#include "src/ir/step.h"

namespace dc::passes {

// The update of the last program writes no copy any more. Returns the rounded parameter, which a
// cast right behind the update makes on its device.
ir::ValueId separate_copy(ir::Step& step, ir::NodeId update);

}  // namespace dc::passes
