// The evaluation of a step as another step, over the state that the passes gave the training.
#pragma once

#include "src/passes/pass.h"

namespace dc::passes {

// `trained`: allocated, with an evaluation. The result is allocated too: the same tables and state
// at the same addresses, one program, every parameter frozen. Shards are gathered, and what lies
// outside the device is reloaded, before their uses, into transients; inputs that the programs of
// the training share keep their bytes. The loss is added to loss_sum, and nothing else of the state
// changes. Budgets are those of the options, as for layout-arenas. Unsupported (DC2603) if
// the forward draws random numbers in eval mode.
base::Result<ir::Step> lower_evaluation(const ir::Step& trained, const PassContext& context);

}  // namespace dc::passes
