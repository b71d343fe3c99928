// The training configuration as the IR's optimizer.
#pragma once

#include <span>

#include "src/base/status.h"
#include "src/base/train_config.h"
#include "src/ir/step.h"

namespace dc::frontend {

// PyTorch's defaults where the configuration is silent. BadConfig if it contradicts itself or a
// group matches no parameter.
base::Result<ir::Optimizer> make_optimizer(const base::TrainConfig& config,
                                           std::span<const ir::Parameter> parameters);

}  // namespace dc::frontend
