// train.json: what the user says about training. Every field may be absent, so that layers can
// override each other: the archive's own description, then --config, then flags.
//
// The schema is schemas/train.schema.json. Unknown keys are errors (BadConfig, 78).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"
#include "src/base/status.h"
#include "src/base/step_enums.h"

namespace dc::base {

// Hyperparameters as torch.optim names them. betas and eps are AdamW's; the last three SGD's.
struct HyperParameters {
  std::optional<double> lr, weight_decay;
  std::optional<double> beta1, beta2, eps;
  std::optional<double> momentum, dampening;
  std::optional<bool> nesterov;
};

// The values that an optimizer starts from, where they are not those of AdamW.
HyperParameters default_hyperparameters(OptimizerKind kind);

// Parameters whose name matches the pattern (`*`, `?`, `\` to escape: glob_match) take these values
// instead.
struct TrainGroup {
  std::string match;
  HyperParameters values;
};

struct TrainSchedule {
  std::optional<ScheduleKind> kind;
  std::optional<int64_t> warmup;  // steps of linear warm-up
  std::optional<int64_t> steps;   // where linear and cosine end, warm-up included
  std::optional<double> final_lr_fraction;
};

struct TrainConfig {
  std::optional<OptimizerKind> kind;
  HyperParameters defaults;
  std::optional<std::vector<TrainGroup>> groups;  // given: replaces the lower layer's list
  std::optional<double> clip_norm;                // 0: no clipping (`null` in the file)
  std::optional<int64_t> seed;
  std::optional<double> loss_scale;
  TrainSchedule schedule;
};

inline constexpr int64_t kMaxConfigBytes = 1 << 20;  // of a file

Result<TrainConfig> parse_train_config(const JsonValue& document);
Result<TrainConfig> read_train_config(const std::string& path);

// `upper` wins. If it changes the optimizer's kind, the lower layer's values of the other kind and
// its learning rate, weight decay and groups are dropped: they were chosen for another optimizer.
TrainConfig merge(TrainConfig lower, const TrainConfig& upper);

// Contradictions of the merged configuration: values of the other optimizer's kind, Nesterov
// without momentum, a schedule without its length.
Status check_train_config(const TrainConfig& config);

}  // namespace dc::base
