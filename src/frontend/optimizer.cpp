#include "src/frontend/optimizer.h"

#include <algorithm>

#include "src/base/text.h"

namespace dc::frontend {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

void apply(const base::HyperParameters& values, ir::OptimizerGroup& group) {
  group.lr = values.lr.value_or(group.lr);
  group.weight_decay = values.weight_decay.value_or(group.weight_decay);
  group.beta1 = values.beta1.value_or(group.beta1);
  group.beta2 = values.beta2.value_or(group.beta2);
  group.eps = values.eps.value_or(group.eps);
  group.momentum = values.momentum.value_or(group.momentum);
  group.dampening = values.dampening.value_or(group.dampening);
  group.nesterov = values.nesterov.value_or(group.nesterov);
}

}  // namespace

Result<ir::Optimizer> make_optimizer(const base::TrainConfig& config,
                                     std::span<const ir::Parameter> parameters) {
  DC_RETURN_IF_ERROR(base::check_train_config(config));
  ir::Optimizer optimizer;
  optimizer.kind = config.kind.value_or(base::OptimizerKind::AdamW);
  ir::OptimizerGroup& defaults = optimizer.groups[0];
  apply(base::default_hyperparameters(optimizer.kind), defaults);
  apply(config.defaults, defaults);
  for (const base::TrainGroup& given : config.groups.value_or(std::vector<base::TrainGroup>())) {
    ir::OptimizerGroup group = optimizer.groups[0];
    group.match = given.match;
    apply(given.values, group);
    const bool matches = std::any_of(
        parameters.begin(), parameters.end(),
        [&given](const ir::Parameter& p) { return base::glob_match(given.match, p.fqn); });
    if (!matches) {
      return Status(ErrorKind::BadConfig, "DC2051",
                    "the group '" + given.match +
                        "' matches no parameter; correct the pattern or remove the group");
    }
    optimizer.groups.push_back(std::move(group));
  }
  const double clip_norm = config.clip_norm.value_or(0);
  optimizer.clip = clip_norm > 0;
  if (optimizer.clip) optimizer.clip_norm = clip_norm;
  optimizer.seed = static_cast<uint64_t>(config.seed.value_or(0));
  optimizer.schedule = config.schedule.kind.value_or(base::ScheduleKind::Constant);
  optimizer.warmup_steps = config.schedule.warmup.value_or(0);
  optimizer.total_steps = config.schedule.steps.value_or(0);
  optimizer.final_lr_fraction = config.schedule.final_lr_fraction.value_or(0);
  return optimizer;
}

}  // namespace dc::frontend
