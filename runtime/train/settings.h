// Settings of a run: the plan's optimizer as --config and --lr change it.
#pragma once

#include <optional>

#include "runtime/train/schedule.h"
#include "src/base/status.h"
#include "src/base/train_config.h"

namespace dc::runtime::train {

// Learning rate, schedule, clip value, weight decay, seed and loss scale may change; the
// optimizer's kind and other numbers, its groups, and whether there is clipping are part of the
// plan: BadConfig (78) if `config` says otherwise. `lr` wins over the configuration.
base::Result<RunSettings> run_settings(const plan::Plan& plan, const base::TrainConfig& config,
                                       std::optional<double> lr);

}  // namespace dc::runtime::train
