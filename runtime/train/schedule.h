// The numbers of an update that change from step to step, written into device hyperparameters
// before the step.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/plan/plan.h"

namespace dc::runtime::train {

// What the host decides per run: the plan's optimizer after --config and --lr.
struct RunSettings {
  plan::Optimizer optimizer;
  double loss_scale = 1;
};

// The factor by which the learning rate of `step` is multiplied. The first update is step 1.
// Warm-up raises the factor linearly to 1 at step `warmup_steps`. Over the rest of `total_steps`
// it falls to final_lr_fraction by the schedule's shape and stays there.
double lr_factor(const plan::Optimizer& optimizer, int64_t step);

// Fills hyperparameters (see src/base/step_scalars.h) for `step`. `contributions`: world x
// accumulation.
void fill_hyperparameters(const RunSettings& settings, int64_t step, int64_t contributions,
                          double* hyperparameters);
int64_t hyperparameter_count(const plan::Optimizer& optimizer);

}  // namespace dc::runtime::train
