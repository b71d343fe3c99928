// Who computes each operator of the model: libtorch or the runtime itself.
#pragma once

#include "src/cost/cost_model.h"
#include "src/ir/step.h"
#include "src/passes/pass.h"

namespace dc::passes {

// Under Any the runtime's own kernel is chosen unless a profile measured both and libtorch's is
// faster by a tenth. Where libtorch would be loaded for that alone, all together must save what
// loading it costs in a thousand steps. Whether anything changed.
bool choose_providers(ir::Step& step, Providers providers, const cost::CostModel& cost);

}  // namespace dc::passes
