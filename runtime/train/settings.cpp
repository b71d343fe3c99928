#include "runtime/train/settings.h"

#include <cmath>
#include <string>
#include <vector>

namespace dc::runtime::train {
namespace {

using base::ErrorKind;
using base::HyperParameters;
using base::Result;
using base::Status;

Status fixed(const std::string& what) {
  return Status(
      ErrorKind::BadConfig, "DC6501",
      "the configuration changes " + what +
          ", which is part of the plan; compile again with dcc compile --config, or leave "
          "it out here");
}

Status check_same(const std::optional<double>& wanted, double planned, const std::string& what) {
  return !wanted || *wanted == planned ? base::ok_status() : fixed(what);
}

// Numbers that the plan fixes, of one group.
Status check_fixed(const HyperParameters& wanted, const plan::OptimizerGroup& planned,
                   const std::string& where) {
  DC_RETURN_IF_ERROR(check_same(wanted.beta1, planned.beta1, "betas" + where));
  DC_RETURN_IF_ERROR(check_same(wanted.beta2, planned.beta2, "betas" + where));
  DC_RETURN_IF_ERROR(check_same(wanted.eps, planned.eps, "eps" + where));
  DC_RETURN_IF_ERROR(check_same(wanted.momentum, planned.momentum, "momentum" + where));
  DC_RETURN_IF_ERROR(check_same(wanted.dampening, planned.dampening, "dampening" + where));
  return !wanted.nesterov || *wanted.nesterov == planned.nesterov ? base::ok_status()
                                                                  : fixed("nesterov" + where);
}

// A new default holds for group 0 and for every group that had the old one.
void change_default(std::vector<plan::OptimizerGroup>& groups, double plan::OptimizerGroup::*field,
                    const std::optional<double>& value) {
  if (!value || groups.empty()) return;
  const double before = groups[0].*field;
  for (plan::OptimizerGroup& group : groups) {
    if (group.*field == before) group.*field = *value;
  }
}

Status apply_groups(const std::vector<base::TrainGroup>& wanted,
                    std::vector<plan::OptimizerGroup>& groups) {
  bool same = wanted.size() + 1 == groups.size();
  for (size_t i = 0; same && i < wanted.size(); ++i) {
    same = wanted[i].match == groups[i + 1].match;
  }
  if (!same) return fixed("the parameter groups");
  for (size_t i = 0; i < wanted.size(); ++i) {
    plan::OptimizerGroup& group = groups[i + 1];
    DC_RETURN_IF_ERROR(check_fixed(wanted[i].values, group, " of group '" + group.match + "'"));
    if (wanted[i].values.lr) group.lr = *wanted[i].values.lr;
    if (wanted[i].values.weight_decay) group.weight_decay = *wanted[i].values.weight_decay;
  }
  return base::ok_status();
}

Status apply_schedule(const base::TrainSchedule& wanted, plan::Optimizer& optimizer) {
  if (wanted.kind) optimizer.schedule = static_cast<plan::ScheduleKind>(*wanted.kind);
  if (wanted.warmup) optimizer.warmup_steps = *wanted.warmup;
  if (wanted.steps) optimizer.total_steps = *wanted.steps;
  if (wanted.final_lr_fraction) optimizer.final_lr_fraction = *wanted.final_lr_fraction;
  if (optimizer.schedule != plan::ScheduleKind::Constant &&
      optimizer.total_steps <= optimizer.warmup_steps) {
    return Status(ErrorKind::BadConfig, "DC6502",
                  "a linear or cosine schedule must end after its warm-up; set schedule.steps");
  }
  return base::ok_status();
}

// Updates compute in float32, whatever the numbers were written in.
Status check_finite(const RunSettings& settings, int64_t contributions) {
  std::vector<double> hyperparameters(
      static_cast<size_t>(hyperparameter_count(settings.optimizer)));
  fill_hyperparameters(settings, 1, contributions, hyperparameters.data());
  for (const double value : hyperparameters) {
    if (std::isfinite(static_cast<float>(value))) continue;
    return Status(ErrorKind::BadConfig, "DC6503",
                  "a hyperparameter (learning rate, weight decay, clip value or loss scale) is "
                  "not a finite number of float32; correct --lr or the configuration");
  }
  return base::ok_status();
}

}  // namespace

Result<RunSettings> run_settings(const plan::Plan& plan, const base::TrainConfig& config,
                                 std::optional<double> lr) {
  RunSettings settings;
  settings.optimizer = plan.optimizer;
  plan::Optimizer& optimizer = settings.optimizer;
  if (config.kind && static_cast<plan::OptimizerKind>(*config.kind) != optimizer.kind) {
    return fixed("the kind of optimizer");
  }
  if (!optimizer.groups.empty()) {
    DC_RETURN_IF_ERROR(check_fixed(config.defaults, optimizer.groups[0], ""));
  }
  change_default(optimizer.groups, &plan::OptimizerGroup::lr, config.defaults.lr);
  change_default(optimizer.groups, &plan::OptimizerGroup::weight_decay,
                 config.defaults.weight_decay);
  if (config.groups) DC_RETURN_IF_ERROR(apply_groups(*config.groups, optimizer.groups));
  change_default(optimizer.groups, &plan::OptimizerGroup::lr, lr);
  if (config.clip_norm) {
    if ((*config.clip_norm > 0) != optimizer.clip) return fixed("whether gradients are clipped");
    if (optimizer.clip) optimizer.clip_norm = *config.clip_norm;
  }
  if (config.seed) optimizer.seed = static_cast<uint64_t>(*config.seed);
  if (config.loss_scale) settings.loss_scale = *config.loss_scale;
  DC_RETURN_IF_ERROR(apply_schedule(config.schedule, optimizer));
  DC_RETURN_IF_ERROR(check_finite(settings, int64_t{plan.world()} * plan.accumulation));
  return settings;
}

}  // namespace dc::runtime::train
