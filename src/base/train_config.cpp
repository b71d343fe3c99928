#include "src/base/train_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "src/base/enum_names.h"
#include "src/base/file.h"
#include "src/base/text.h"

namespace dc::base {
namespace {

Status bad(const JsonValue& at, const std::string& sentence) {
  const std::string where = at.line() > 0 ? "line " + std::to_string(at.line()) + ": " : "";
  return Status(ErrorKind::BadConfig, "DC1201", where + sentence);
}

Status as_config(const Status& status) {
  return Status(ErrorKind::BadConfig, "DC1202", status.sentence());
}

using Keys = std::span<const std::string_view>;
constexpr std::array<std::string_view, 6> kTopKeys = {"optimizer", "groups",     "clip_norm",
                                                      "seed",      "loss_scale", "schedule"};
constexpr std::array<std::string_view, 8> kOptimizerKeys = {
    "kind", "lr", "betas", "eps", "weight_decay", "momentum", "dampening", "nesterov"};
constexpr std::array<std::string_view, 8> kGroupKeys = {
    "match", "lr", "betas", "eps", "weight_decay", "momentum", "dampening", "nesterov"};
constexpr std::array<std::string_view, 4> kScheduleKeys = {"kind", "warmup", "steps",
                                                           "final_lr_fraction"};

// What to write instead of an unknown key: one that is close, the object that has this key, or the
// keys that there are.
std::string cure(const std::string& key, Keys known) {
  if (std::string close = did_you_mean(key, known); !close.empty()) return close;
  const std::pair<const char*, Keys> objects[] = {{"'optimizer'", kOptimizerKeys},
                                                  {"'schedule'", kScheduleKeys},
                                                  {"the training configuration itself", kTopKeys}};
  for (const auto& [object, keys] : objects) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end())
      return std::string("; give it in ") + object;
  }
  std::string list;
  for (std::string_view name : known) list += (list.empty() ? "" : ", ") + std::string(name);
  return "; choose from " + list;
}

Status check_keys(const JsonValue& object, std::string_view what, Keys known) {
  if (!object.is_object()) return bad(object, std::string(what) + " must be an object");
  for (const auto& [key, value] : object.members()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return bad(value, "unknown key '" + key + "' in " + std::string(what) + cure(key, known));
  }
  return ok_status();
}

struct Range {
  double low = 0;
  double high = INFINITY;
  bool open_low = false;   // low itself is refused
  bool open_high = false;  // high itself is refused
};

Status read_real(const JsonValue& value, const std::string& name, Range range,
                 std::optional<double>& target) {
  Result<double> number = value.to_real();
  if (!number.ok()) return as_config(number.status()).add_context("in '" + name + "'");
  const double v = *number;
  const bool below = range.open_low ? !(v > range.low) : !(v >= range.low);
  const bool above = range.open_high ? v >= range.high : v > range.high;
  const bool fits = std::abs(v) <= static_cast<double>(std::numeric_limits<float>::max());
  if (!fits || below || above) {
    std::string text;
    append_json_real(text, v);
    return bad(value, "'" + name + "' is " + text + ", which is out of range");
  }
  target = v;
  return ok_status();
}

Status read_count(const JsonValue& value, const std::string& name, std::optional<int64_t>& target) {
  Result<int64_t> number = value.to_integer();
  if (!number.ok()) return as_config(number.status()).add_context("in '" + name + "'");
  if (*number < 0) return bad(value, "'" + name + "' is negative");
  target = *number;
  return ok_status();
}

Status read_betas(const JsonValue& value, HyperParameters& target) {
  if (!value.is_array() || value.items().size() != 2) {
    return bad(value, "'betas' must be two numbers, for example [0.9, 0.999]");
  }
  const Range range{0, 1, false, true};
  DC_RETURN_IF_ERROR(read_real(value.items()[0], "betas", range, target.beta1));
  return read_real(value.items()[1], "betas", range, target.beta2);
}

// The keys an optimizer and a group share.
Status read_hyperparameters(const JsonValue& object, HyperParameters& target) {
  for (const auto& [key, value] : object.members()) {
    if (key == "lr") DC_RETURN_IF_ERROR(read_real(value, key, {}, target.lr));
    if (key == "weight_decay") DC_RETURN_IF_ERROR(read_real(value, key, {}, target.weight_decay));
    if (key == "betas") DC_RETURN_IF_ERROR(read_betas(value, target));
    if (key == "eps") DC_RETURN_IF_ERROR(read_real(value, key, {}, target.eps));
    if (key == "momentum") DC_RETURN_IF_ERROR(read_real(value, key, {}, target.momentum));
    if (key == "dampening") DC_RETURN_IF_ERROR(read_real(value, key, {}, target.dampening));
    if (key == "nesterov") {
      Result<bool> flag = value.to_bool();
      if (!flag.ok()) return as_config(flag.status()).add_context("in 'nesterov'");
      target.nesterov = *flag;
    }
  }
  return ok_status();
}

template <typename Name, size_t N>
Status read_name(const JsonValue& value, const std::string& key,
                 const std::array<std::string_view, N>& names, std::optional<Name>& target) {
  Result<std::string> text = value.to_string();
  if (!text.ok()) return as_config(text.status()).add_context("in '" + key + "'");
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == *text) {
      target = static_cast<Name>(i);
      return ok_status();
    }
  }
  std::string known;
  for (std::string_view name : names) known += (known.empty() ? "" : ", ") + std::string(name);
  return bad(value,
             "'" + key + "' is '" + *text + "', known are " + known + did_you_mean(*text, names));
}

Status read_optimizer(const JsonValue& object, TrainConfig& config) {
  constexpr auto kKinds = enum_names<OptimizerName>({"adamw", "sgd"});
  DC_RETURN_IF_ERROR(check_keys(object, "'optimizer'", kOptimizerKeys));
  if (const JsonValue* kind = object.find("kind")) {
    DC_RETURN_IF_ERROR(read_name(*kind, "kind", kKinds, config.kind));
  }
  return read_hyperparameters(object, config.defaults);
}

// Whether every backslash stands before what it may escape.
bool has_whole_escapes(std::string_view pattern) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\') continue;
    if (++i == pattern.size() ||
        std::string_view("*?\\").find(pattern[i]) == std::string_view::npos) {
      return false;
    }
  }
  return true;
}

Status read_groups(const JsonValue& list, TrainConfig& config) {
  if (!list.is_array()) return bad(list, "'groups' must be an array");
  config.groups.emplace();
  for (const JsonValue& item : list.items()) {
    DC_RETURN_IF_ERROR(check_keys(item, "a group", kGroupKeys));
    const JsonValue* match = item.find("match");
    if (match == nullptr || !match->is_string()) {
      return bad(item, "a group needs 'match', a pattern for parameter names such as \"*norm*\"");
    }
    TrainGroup group;
    DC_ASSIGN_OR_RETURN(group.match, match->to_string());
    if (!has_whole_escapes(group.match)) {
      return bad(item, "the pattern '" + group.match +
                           "' has a backslash that escapes nothing; it goes before *, ? or another "
                           "backslash (in JSON each is written twice)");
    }
    DC_RETURN_IF_ERROR(read_hyperparameters(item, group.values));
    config.groups->push_back(std::move(group));
  }
  return ok_status();
}

Status read_schedule(const JsonValue& object, TrainSchedule& schedule) {
  constexpr auto kKinds = enum_names<ScheduleName>({"constant", "linear", "cosine"});
  DC_RETURN_IF_ERROR(check_keys(object, "'schedule'", kScheduleKeys));
  for (const auto& [key, value] : object.members()) {
    if (key == "kind") DC_RETURN_IF_ERROR(read_name(value, key, kKinds, schedule.kind));
    if (key == "warmup") DC_RETURN_IF_ERROR(read_count(value, key, schedule.warmup));
    if (key == "steps") DC_RETURN_IF_ERROR(read_count(value, key, schedule.steps));
    if (key == "final_lr_fraction") {
      DC_RETURN_IF_ERROR(read_real(value, key, {0, 1}, schedule.final_lr_fraction));
    }
  }
  return ok_status();
}

template <typename T>
void override_with(std::optional<T>& lower, const std::optional<T>& upper) {
  if (upper) lower = upper;
}

Status check_kind(const HyperParameters& values, bool adamw, const std::string& where) {
  const bool adamw_values = values.beta1 || values.beta2 || values.eps;
  const bool sgd_values = values.momentum || values.dampening || values.nesterov;
  if (adamw && sgd_values) {
    return Status(ErrorKind::BadConfig, "DC1203",
                  where +
                      " gives momentum, dampening or nesterov, which AdamW does not have; "
                      "remove them or set \"kind\": \"sgd\"");
  }
  if (!adamw && adamw_values) {
    return Status(ErrorKind::BadConfig, "DC1203",
                  where +
                      " gives betas or eps, which SGD does not have; remove them or set "
                      "\"kind\": \"adamw\"");
  }
  return ok_status();
}

Status check_nesterov(const HyperParameters& defaults, const HyperParameters& own,
                      const std::string& where) {
  const auto pick = [](const auto& first, const auto& second) { return first ? first : second; };
  if (!pick(own.nesterov, defaults.nesterov).value_or(false)) return ok_status();
  const double momentum = pick(own.momentum, defaults.momentum).value_or(0);
  const double dampening = pick(own.dampening, defaults.dampening).value_or(0);
  if (momentum > 0 && dampening == 0) return ok_status();
  return Status(ErrorKind::BadConfig, "DC1204",
                where + " sets nesterov, which needs momentum above 0 and dampening 0");
}

}  // namespace

Result<TrainConfig> parse_train_config(const JsonValue& document) {
  DC_RETURN_IF_ERROR(check_keys(document, "the training configuration", kTopKeys));
  TrainConfig config;
  for (const auto& [key, value] : document.members()) {
    if (key == "optimizer") DC_RETURN_IF_ERROR(read_optimizer(value, config));
    if (key == "groups") DC_RETURN_IF_ERROR(read_groups(value, config));
    if (key == "seed") DC_RETURN_IF_ERROR(read_count(value, key, config.seed));
    if (key == "schedule") DC_RETURN_IF_ERROR(read_schedule(value, config.schedule));
    if (key == "loss_scale") {
      DC_RETURN_IF_ERROR(read_real(value, key, {0, INFINITY, true}, config.loss_scale));
    }
    if (key == "clip_norm" && value.is_null()) config.clip_norm = 0.0;
    if (key == "clip_norm" && !value.is_null()) {
      DC_RETURN_IF_ERROR(read_real(value, key, {}, config.clip_norm));
    }
  }
  return config;
}

Result<TrainConfig> read_train_config(const std::string& path) {
  DC_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxConfigBytes));
  Result<JsonValue> document = parse_json_value(text, path);
  if (!document.ok()) return as_config(document.status());
  Result<TrainConfig> config = parse_train_config(*document);
  if (!config.ok()) return Status(config.status()).add_context("in " + path);
  return config;
}

TrainConfig merge(TrainConfig lower, const TrainConfig& upper) {
  if (upper.kind && lower.kind && *upper.kind != *lower.kind) {
    lower.defaults = HyperParameters();
    lower.groups.reset();
  }
  override_with(lower.kind, upper.kind);
  override_with(lower.defaults.lr, upper.defaults.lr);
  override_with(lower.defaults.weight_decay, upper.defaults.weight_decay);
  override_with(lower.defaults.beta1, upper.defaults.beta1);
  override_with(lower.defaults.beta2, upper.defaults.beta2);
  override_with(lower.defaults.eps, upper.defaults.eps);
  override_with(lower.defaults.momentum, upper.defaults.momentum);
  override_with(lower.defaults.dampening, upper.defaults.dampening);
  override_with(lower.defaults.nesterov, upper.defaults.nesterov);
  override_with(lower.groups, upper.groups);
  override_with(lower.clip_norm, upper.clip_norm);
  override_with(lower.seed, upper.seed);
  override_with(lower.loss_scale, upper.loss_scale);
  override_with(lower.schedule.kind, upper.schedule.kind);
  override_with(lower.schedule.warmup, upper.schedule.warmup);
  override_with(lower.schedule.steps, upper.schedule.steps);
  override_with(lower.schedule.final_lr_fraction, upper.schedule.final_lr_fraction);
  return lower;
}

Status check_train_config(const TrainConfig& config) {
  const bool adamw = config.kind.value_or(OptimizerName::AdamW) == OptimizerName::AdamW;
  DC_RETURN_IF_ERROR(check_kind(config.defaults, adamw, "'optimizer'"));
  DC_RETURN_IF_ERROR(check_nesterov(config.defaults, {}, "'optimizer'"));
  if (config.groups) {
    for (const TrainGroup& group : *config.groups) {
      const std::string where = "the group '" + group.match + "'";
      DC_RETURN_IF_ERROR(check_kind(group.values, adamw, where));
      DC_RETURN_IF_ERROR(check_nesterov(config.defaults, group.values, where));
    }
  }
  const ScheduleName schedule = config.schedule.kind.value_or(ScheduleName::Constant);
  if (schedule == ScheduleName::Constant) return ok_status();
  if (config.schedule.steps.value_or(0) <= config.schedule.warmup.value_or(0)) {
    return Status(ErrorKind::BadConfig, "DC1205",
                  "a linear or cosine schedule needs 'steps', more than 'warmup'");
  }
  return ok_status();
}

}  // namespace dc::base
