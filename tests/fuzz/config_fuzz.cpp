// Fuzz target: arbitrary bytes as train.json. What is accepted makes an optimizer of finite,
// sensible numbers, alone and on top of another configuration, or is refused in words.
#include <cmath>
#include <cstdlib>

#include "src/base/train_config.h"
#include "src/frontend/optimizer.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"

namespace {

using namespace dc;  // NOLINT

bool is_sensible(const ir::OptimizerGroup& group) {
  bool good = true;
  for (const double value : {group.lr, group.weight_decay, group.beta1, group.beta2, group.eps,
                             group.momentum, group.dampening}) {
    good = good && std::isfinite(value) && value >= 0;
  }
  return good && group.beta1 < 1 && group.beta2 < 1;
}

void make(const base::TrainConfig& config) {
  ir::Parameter weight;
  weight.fqn = "layers.0.weight";
  const auto optimizer = frontend::make_optimizer(config, {&weight, 1});
  if (!optimizer.ok()) {
    if (optimizer.status().to_string().empty()) std::abort();
    return;
  }
  for (const ir::OptimizerGroup& group : optimizer->groups) {
    if (!is_sensible(group)) std::abort();
  }
  if (!std::isfinite(optimizer->clip_norm) || optimizer->clip_norm < 0) std::abort();
  if (optimizer->warmup_steps < 0 || optimizer->total_steps < 0) std::abort();
  if (!(optimizer->final_lr_fraction >= 0 && optimizer->final_lr_fraction <= 1)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file({reinterpret_cast<const char*>(data), size});
  const auto config = base::read_train_config(file.path());
  if (!config.ok()) {
    if (config.status().to_string().empty()) std::abort();
    return 0;
  }
  make(*config);
  base::TrainConfig lower;
  lower.kind = base::OptimizerKind::Sgd;
  lower.defaults.momentum = 0.9;
  lower.schedule.kind = base::ScheduleKind::Cosine;
  lower.schedule.steps = 10;
  make(base::merge(lower, *config));
  make(base::merge(*config, lower));
  return 0;
}
