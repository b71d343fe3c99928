#include "runtime/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/base/step_scalars.h"

namespace dc::runtime::train {

double lr_factor(const plan::Optimizer& optimizer, int64_t step) {
  if (step <= optimizer.warmup_steps) {
    return static_cast<double>(step) / static_cast<double>(optimizer.warmup_steps);
  }
  if (optimizer.schedule == plan::ScheduleKind::Constant) return 1;
  const auto length =
      static_cast<double>(std::max<int64_t>(optimizer.total_steps - optimizer.warmup_steps, 1));
  const double progress =
      std::min(1.0, static_cast<double>(step - optimizer.warmup_steps) / length);
  const double rest = 1 - optimizer.final_lr_fraction;
  if (optimizer.schedule == plan::ScheduleKind::Linear) return 1 - rest * progress;
  return optimizer.final_lr_fraction + rest * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

int64_t hyperparameter_count(const plan::Optimizer& optimizer) {
  return base::kHyperGroups + base::kHyperPerGroup * static_cast<int64_t>(optimizer.groups.size());
}

void fill_hyperparameters(const RunSettings& settings, int64_t step, int64_t contributions,
                          double* hyperparameters) {
  const plan::Optimizer& optimizer = settings.optimizer;
  const auto divisor = static_cast<double>(contributions);
  hyperparameters[base::kHyperGradScale] = 1.0 / (divisor * settings.loss_scale);
  hyperparameters[base::kHyperClipNorm] = optimizer.clip_norm;
  hyperparameters[base::kHyperStep] = static_cast<double>(step);
  hyperparameters[base::kHyperLossDivisor] = divisor;
  const double factor = lr_factor(optimizer, step);
  for (size_t g = 0; g < optimizer.groups.size(); ++g) {
    const plan::OptimizerGroup& group = optimizer.groups[g];
    double* own =
        hyperparameters + base::kHyperGroups + base::kHyperPerGroup * static_cast<int64_t>(g);
    own[base::kGroupLr] = group.lr * factor;
    own[base::kGroupWeightDecay] = group.weight_decay;
    own[base::kGroupBeta1] = group.beta1;
    own[base::kGroupBeta2] = group.beta2;
    own[base::kGroupEps] = group.eps;
    own[base::kGroupMomentum] = group.momentum;
    own[base::kGroupDampening] = group.dampening;
  }
}

}  // namespace dc::runtime::train
