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

struct Range {
  double low = 0;
  double high = INFINITY;
  bool open_low = false;   // low itself is refused
  bool open_high = false;  // high itself is refused
  bool or_null = false;    // null is 0
};

// A key of an object of the file and the member that has its value: what reading, merging of layers
// and the errors for unknown keys know of it.
template <typename Struct>
struct Key {
  std::string_view name;
  Range range;  // of numbers
  Status (*read)(const JsonValue& value, const Key& key, Struct& target);
  void (*merge)(Struct& lower, const Struct& upper);
};

// "from 0 to 1 (1 excluded)"
std::string text_of(Range range) {
  const auto excluded = [](bool open, double end) {
    if (!open) return std::string();
    std::string text = " (";
    append_json_real(text, end);
    return text + " excluded)";
  };
  std::string text;
  if (std::isinf(range.high)) {
    append_json_real(text += range.open_low ? "above " : "at least ", range.low);
    return text;
  }
  append_json_real(text += "from ", range.low);
  text += excluded(range.open_low, range.low);
  append_json_real(text += " to ", range.high);
  return text + excluded(range.open_high, range.high);
}

template <typename T>
void override_with(std::optional<T>& lower, const std::optional<T>& upper) {
  if (upper) lower = upper;
}

Status read_real(const JsonValue& value, std::string_view name, Range range,
                 std::optional<double>& target) {
  if (range.or_null && value.is_null()) {
    target = 0;
    return ok_status();
  }
  Result<double> number = value.to_real();
  const std::string quoted = "'" + std::string(name) + "'";
  if (!number.ok()) return as_config(number.status()).add_context("in " + quoted);
  const double v = *number;
  const bool below = range.open_low ? !(v > range.low) : !(v >= range.low);
  const bool above = range.open_high ? v >= range.high : v > range.high;
  const bool fits = std::abs(v) <= static_cast<double>(std::numeric_limits<float>::max());
  if (!fits || below || above) {
    std::string text;
    append_json_real(text, v);
    return bad(value, quoted + " is " + text + "; give a number " +
                          (fits ? text_of(range) : "that fits in float32"));
  }
  target = v;
  return ok_status();
}

Status read_value(const JsonValue& value, std::string_view name, Range range,
                  std::optional<double>& target) {
  return read_real(value, name, range, target);
}

Status read_value(const JsonValue& value, std::string_view name, Range,
                  std::optional<int64_t>& target) {
  Result<int64_t> number = value.to_integer();
  const std::string quoted = "'" + std::string(name) + "'";
  if (!number.ok()) return as_config(number.status()).add_context("in " + quoted);
  if (*number < 0)
    return bad(value, quoted + " is " + std::to_string(*number) + "; give a number at least 0");
  target = *number;
  return ok_status();
}

Status read_value(const JsonValue& value, std::string_view name, Range,
                  std::optional<bool>& target) {
  Result<bool> flag = value.to_bool();
  if (!flag.ok()) return as_config(flag.status()).add_context("in '" + std::string(name) + "'");
  target = *flag;
  return ok_status();
}

template <typename Enum>
constexpr std::array<std::string_view, 0> kNames = {};
template <>
constexpr auto kNames<OptimizerKind> = kOptimizerKindNames;
template <>
constexpr auto kNames<ScheduleKind> = kScheduleKindNames;

template <typename Enum>
Status read_value(const JsonValue& value, std::string_view name, Range,
                  std::optional<Enum>& target) {
  const std::string quoted = "'" + std::string(name) + "'";
  Result<std::string> text = value.to_string();
  if (!text.ok()) return as_config(text.status()).add_context("in " + quoted);
  target = enum_value<Enum>(kNames<Enum>, *text);
  if (target) return ok_status();
  std::string known;
  for (const std::string_view each : kNames<Enum>)
    known += (known.empty() ? "" : ", ") + std::string(each);
  return bad(value, quoted + " is '" + *text + "', known are " + known +
                        did_you_mean(*text, kNames<Enum>));
}

// The key of one member.
template <typename Struct, typename T, std::optional<T> Struct::*member>
struct MemberKey {
  static Status read(const JsonValue& value, const Key<Struct>& key, Struct& target) {
    return read_value(value, key.name, key.range, target.*member);
  }
  static void merge(Struct& lower, const Struct& upper) {
    override_with(lower.*member, upper.*member);
  }
};
template <auto member>
struct KeyOf;
template <typename Struct, typename T, std::optional<T> Struct::*member>
struct KeyOf<member> {
  static constexpr Key<Struct> make(std::string_view name, Range range) {
    using Functions = MemberKey<Struct, T, member>;
    return {name, range, Functions::read, Functions::merge};
  }
};
template <auto member>
constexpr auto key(std::string_view name, Range range = {}) {
  return KeyOf<member>::make(name, range);
}

Status read_betas(const JsonValue& value, const Key<HyperParameters>& key,
                  HyperParameters& target) {
  if (!value.is_array() || value.items().size() != 2) {
    return bad(value, "'betas' must be two numbers, for example [0.9, 0.999]");
  }
  DC_RETURN_IF_ERROR(read_real(value.items()[0], key.name, key.range, target.beta1));
  return read_real(value.items()[1], key.name, key.range, target.beta2);
}

void merge_betas(HyperParameters& lower, const HyperParameters& upper) {
  override_with(lower.beta1, upper.beta1);
  override_with(lower.beta2, upper.beta2);
}

// Of an optimizer and of a group.
constexpr Key<HyperParameters> kHyperParameters[] = {
    key<&HyperParameters::lr>("lr"),
    {"betas", {0, 1, false, true}, read_betas, merge_betas},
    key<&HyperParameters::eps>("eps"),
    key<&HyperParameters::weight_decay>("weight_decay"),
    key<&HyperParameters::momentum>("momentum"),
    key<&HyperParameters::dampening>("dampening"),
    key<&HyperParameters::nesterov>("nesterov"),
};
constexpr Key<TrainSchedule> kSchedule[] = {
    key<&TrainSchedule::kind>("kind"),
    key<&TrainSchedule::warmup>("warmup"),
    key<&TrainSchedule::steps>("steps"),
    key<&TrainSchedule::final_lr_fraction>("final_lr_fraction", {0, 1}),
};
constexpr Key<TrainConfig> kKindOfOptimizer = key<&TrainConfig::kind>("kind");
constexpr std::string_view kMatch = "match";  // what a group has besides

Status read_optimizer(const JsonValue& object, const Key<TrainConfig>&, TrainConfig& config);
Status read_groups(const JsonValue& list, const Key<TrainConfig>&, TrainConfig& config);
Status read_schedule(const JsonValue& object, const Key<TrainConfig>&, TrainConfig& config);
void merge_optimizer(TrainConfig& lower, const TrainConfig& upper);
void merge_groups(TrainConfig& lower, const TrainConfig& upper);
void merge_schedule(TrainConfig& lower, const TrainConfig& upper);

constexpr Key<TrainConfig> kTop[] = {
    {"optimizer", {}, read_optimizer, merge_optimizer},
    {"groups", {}, read_groups, merge_groups},
    key<&TrainConfig::clip_norm>("clip_norm", {.or_null = true}),
    key<&TrainConfig::seed>("seed"),
    key<&TrainConfig::loss_scale>("loss_scale", {.open_low = true}),
    {"schedule", {}, read_schedule, merge_schedule},
};

using Names = std::vector<std::string_view>;

template <typename Struct, size_t count>
Names names_of(const Key<Struct> (&keys)[count], std::string_view first = {}) {
  Names names;
  if (!first.empty()) names.push_back(first);
  for (const Key<Struct>& each : keys) names.push_back(each.name);
  return names;
}

// What to write instead of an unknown key: one that is close, the object that has this key, or the
// keys that there are.
std::string cure(const std::string& key, const Names& known) {
  if (std::string close = did_you_mean(key, known); !close.empty()) return close;
  const std::pair<const char*, Names> objects[] = {
      {"'optimizer'", names_of(kHyperParameters, kKindOfOptimizer.name)},
      {"'schedule'", names_of(kSchedule)},
      {"the training configuration itself", names_of(kTop)}};
  for (const auto& [object, keys] : objects) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end())
      return std::string("; give it in ") + object;
  }
  std::string list;
  for (std::string_view name : known) list += (list.empty() ? "" : ", ") + std::string(name);
  return "; choose from " + list;
}

Status check_keys(const JsonValue& object, std::string_view what, const Names& known) {
  if (!object.is_object()) return bad(object, std::string(what) + " must be an object");
  for (const auto& [key, value] : object.members()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return bad(value, "unknown key '" + key + "' in " + std::string(what) + cure(key, known));
  }
  return ok_status();
}

// In the file's order; other keys are passed over.
template <typename Struct, size_t count>
Status read_members(const JsonValue& object, const Key<Struct> (&keys)[count], Struct& target) {
  for (const auto& [name, value] : object.members()) {
    for (const Key<Struct>& each : keys) {
      if (each.name == name) DC_RETURN_IF_ERROR(each.read(value, each, target));
    }
  }
  return ok_status();
}

template <typename Struct, size_t count>
void merge_members(const Key<Struct> (&keys)[count], Struct& lower, const Struct& upper) {
  for (const Key<Struct>& each : keys) each.merge(lower, upper);
}

Status read_optimizer(const JsonValue& object, const Key<TrainConfig>&, TrainConfig& config) {
  DC_RETURN_IF_ERROR(
      check_keys(object, "'optimizer'", names_of(kHyperParameters, kKindOfOptimizer.name)));
  if (const JsonValue* kind = object.find(kKindOfOptimizer.name)) {
    DC_RETURN_IF_ERROR(kKindOfOptimizer.read(*kind, kKindOfOptimizer, config));
  }
  return read_members(object, kHyperParameters, config.defaults);
}

void merge_optimizer(TrainConfig& lower, const TrainConfig& upper) {
  kKindOfOptimizer.merge(lower, upper);
  merge_members(kHyperParameters, lower.defaults, upper.defaults);
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

Status read_groups(const JsonValue& list, const Key<TrainConfig>&, TrainConfig& config) {
  if (!list.is_array()) return bad(list, "'groups' must be an array");
  config.groups.emplace();
  for (const JsonValue& item : list.items()) {
    DC_RETURN_IF_ERROR(check_keys(item, "a group", names_of(kHyperParameters, kMatch)));
    const JsonValue* match = item.find(kMatch);
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
    DC_RETURN_IF_ERROR(read_members(item, kHyperParameters, group.values));
    config.groups->push_back(std::move(group));
  }
  return ok_status();
}

void merge_groups(TrainConfig& lower, const TrainConfig& upper) {
  override_with(lower.groups, upper.groups);
}

Status read_schedule(const JsonValue& object, const Key<TrainConfig>&, TrainConfig& config) {
  DC_RETURN_IF_ERROR(check_keys(object, "'schedule'", names_of(kSchedule)));
  return read_members(object, kSchedule, config.schedule);
}

void merge_schedule(TrainConfig& lower, const TrainConfig& upper) {
  merge_members(kSchedule, lower.schedule, upper.schedule);
}

// What hyperparameters a kind has besides lr and weight_decay.
struct Facts {
  std::string_view title;
  bool betas = false, eps = false, momentum = false;
};
Facts facts_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::AdamW:
      return {.title = "AdamW", .betas = true, .eps = true};
    case OptimizerKind::Sgd:
      return {.title = "SGD", .momentum = true};
  }
  return {};
}

Status check_kind(const HyperParameters& values, OptimizerKind kind, const std::string& where) {
  const Facts has = facts_of(kind);
  const auto refuse = [&](const std::string& given, std::string_view cure) {
    return Status(ErrorKind::BadConfig, "DC1203",
                  where + " gives " + given + ", which " + std::string(has.title) +
                      " does not have; remove them or set \"kind\": \"" + std::string(cure) + "\"");
  };
  if (!has.momentum && (values.momentum || values.dampening || values.nesterov))
    return refuse("momentum, dampening or nesterov", name(OptimizerKind::Sgd));
  if ((!has.betas && (values.beta1 || values.beta2)) || (!has.eps && values.eps))
    return refuse("betas or eps", name(OptimizerKind::AdamW));
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

HyperParameters default_hyperparameters(OptimizerKind kind) {
  HyperParameters values;
  switch (kind) {
    case OptimizerKind::AdamW:
      break;
    case OptimizerKind::Sgd:  // as torch.optim.SGD
      values.weight_decay = 0;
      break;
  }
  return values;
}

Result<TrainConfig> parse_train_config(const JsonValue& document) {
  DC_RETURN_IF_ERROR(check_keys(document, "the training configuration", names_of(kTop)));
  TrainConfig config;
  DC_RETURN_IF_ERROR(read_members(document, kTop, config));
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
  merge_members(kTop, lower, upper);
  return lower;
}

Status check_train_config(const TrainConfig& config) {
  const OptimizerKind kind = config.kind.value_or(OptimizerKind::AdamW);
  DC_RETURN_IF_ERROR(check_kind(config.defaults, kind, "'optimizer'"));
  DC_RETURN_IF_ERROR(check_nesterov(config.defaults, {}, "'optimizer'"));
  if (config.groups) {
    for (const TrainGroup& group : *config.groups) {
      const std::string where = "the group '" + group.match + "'";
      DC_RETURN_IF_ERROR(check_kind(group.values, kind, where));
      DC_RETURN_IF_ERROR(check_nesterov(config.defaults, group.values, where));
    }
  }
  const ScheduleKind schedule = config.schedule.kind.value_or(ScheduleKind::Constant);
  if (schedule == ScheduleKind::Constant) return ok_status();
  if (config.schedule.steps.value_or(0) <= config.schedule.warmup.value_or(0)) {
    return Status(ErrorKind::BadConfig, "DC1205",
                  "a linear or cosine schedule needs 'steps', more than 'warmup'");
  }
  return ok_status();
}

}  // namespace dc::base
