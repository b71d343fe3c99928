// Roles and ranges of the step's inputs: from the archive's description, else read from the graph.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/frontend/description.h"
#include "src/ir/step.h"

namespace dc::frontend {

// `step.inputs` has names and types. Fills role, low and high, and moves the loss scale to the end.
// An input whose range nothing tells keeps an empty one (low = high = 0): its data cannot be drawn.
base::Status describe_inputs(const Description& description, ir::Step& step,
                             std::vector<std::string>& notes);

}  // namespace dc::frontend
