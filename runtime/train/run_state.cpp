#include "runtime/train/run_state.h"

#include "runtime/checkpoint/restore.h"
#include "runtime/plan/names.h"
#include "runtime/train/data.h"

namespace dc::runtime::train {
namespace {

using base::JsonValue;

JsonValue groups(const plan::Optimizer& optimizer) {
  JsonValue list = JsonValue::array();
  for (const plan::OptimizerGroup& from : optimizer.groups) {
    JsonValue group = JsonValue::object();
    group.set("match", JsonValue(from.match));
    group.set("lr", JsonValue(from.lr));
    group.set("weight_decay", JsonValue(from.weight_decay));
    group.set("beta1", JsonValue(from.beta1));
    group.set("beta2", JsonValue(from.beta2));
    group.set("eps", JsonValue(from.eps));
    group.set("momentum", JsonValue(from.momentum));
    group.set("dampening", JsonValue(from.dampening));
    group.set("nesterov", JsonValue(from.nesterov));
    list.push(std::move(group));
  }
  return list;
}

JsonValue schedule(const plan::Optimizer& optimizer) {
  JsonValue schedule = JsonValue::object();
  schedule.set("kind", JsonValue(std::string(plan::name(optimizer.schedule))));
  schedule.set("warmup", JsonValue(optimizer.warmup_steps));
  schedule.set("steps", JsonValue(optimizer.total_steps));
  schedule.set("final_lr_fraction", JsonValue(optimizer.final_lr_fraction));
  return schedule;
}

}  // namespace

JsonValue run_configuration(const plan::Plan& plan, const TrainOptions& options) {
  const plan::Optimizer& optimizer = options.settings.optimizer;
  JsonValue all = JsonValue::object();
  const DataRequest request = DataRequest::of(plan, 0, options.shuffle);
  all.set("global batch", JsonValue(request.shape.per_step()));
  JsonValue data = JsonValue::array();
  for (const std::string& text : options.data) data.push(JsonValue(text));
  all.set("data", std::move(data));
  all.set("shuffle", options.shuffle ? JsonValue(std::to_string(*options.shuffle)) : JsonValue());
  all.set("groups", groups(optimizer));
  all.set("schedule", schedule(optimizer));
  all.set("clip_norm", optimizer.clip ? JsonValue(optimizer.clip_norm) : JsonValue());
  all.set("seed", JsonValue(std::to_string(optimizer.seed)));
  all.set("loss_scale", JsonValue(options.settings.loss_scale));
  return all;
}

checkpoint::RunState run_state(const plan::Plan& plan, const std::string& digest,
                               const TrainOptions& options, int64_t steps,
                               const checkpoint::DataPosition& position) {
  checkpoint::RunState state;
  state.step = steps;
  state.data = position;
  state.seed = options.settings.optimizer.seed;
  state.optimizer = std::string(plan::name(plan.optimizer.kind));
  state.model_digest = plan.model_digest;
  state.step_digest = plan.step_digest;
  state.plan_digest = digest;
  state.world = plan.world();
  state.configuration = run_configuration(plan, options);
  return state;
}

}  // namespace dc::runtime::train
