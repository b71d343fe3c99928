#include "src/frontend/description.h"

#include <algorithm>
#include <array>

#include "src/base/json.h"
#include "src/ir/enum_words.h"

namespace dc::frontend {
namespace {

using base::ErrorKind;
using base::JsonValue;
using base::Result;
using base::Status;

constexpr int64_t kDescriptionVersion = 1;

Result<double> real_member(const JsonValue& object, std::string_view key) {
  DC_ASSIGN_OR_RETURN(const JsonValue* value, object.require(key));
  return value->to_real();
}

// "low" and "high" of what is drawn between them.
Status read_range(const JsonValue& object, double& low, double& high) {
  DC_ASSIGN_OR_RETURN(low, real_member(object, "low"));
  DC_ASSIGN_OR_RETURN(high, real_member(object, "high"));
  if (low <= high) return base::ok_status();
  return Status(ErrorKind::BadInput, "DC2031",
                "line " + std::to_string(object.line()) +
                    ": low is above high; nothing can be drawn between them: export the model "
                    "again");
}

Result<std::string> text_member(const JsonValue& object, std::string_view key) {
  DC_ASSIGN_OR_RETURN(const JsonValue* value, object.require(key));
  return value->to_string();
}

Status unknown_word(const JsonValue& at, const char* what, const std::string& word) {
  return Status(ErrorKind::BadInput, "DC2031",
                "line " + std::to_string(at.line()) + ": unknown " + what + " '" + word +
                    "'; the archive was made by another version of scripts/export.py");
}

Status negative(const JsonValue& at, const char* name, const char* meaning) {
  return Status(ErrorKind::BadInput, "DC2031",
                "line " + std::to_string(at.line()) + ": " + name + " is negative; it is " +
                    meaning + ": export the model again");
}

// Which tokens the labels are: "same", the default, or "next".
Status read_labels(const JsonValue& item, InputDescription& input) {
  if (item.find("labels") == nullptr) return base::ok_status();
  constexpr std::array<std::string_view, 2> kWords = {"same", "next"};
  DC_ASSIGN_OR_RETURN(const std::string labels, text_member(item, "labels"));
  const auto word = std::find(kWords.begin(), kWords.end(), labels);
  input.next = word == kWords.begin() + 1;
  if (word != kWords.end() && input.role == ir::InputRole::Labels) return base::ok_status();
  return unknown_word(item, "kind of labels", labels);
}

Status read_inputs(const JsonValue& list, Description& description) {
  DC_ASSIGN_OR_RETURN(const auto* items, list.to_array());
  for (const JsonValue& item : *items) {
    InputDescription input;
    DC_ASSIGN_OR_RETURN(input.name, text_member(item, "name"));
    DC_ASSIGN_OR_RETURN(const std::string role, text_member(item, "role"));
    const std::optional<ir::InputRole> known = ir::from_word<ir::InputRole>(role);
    if (!known || *known == ir::InputRole::LossScale) return unknown_word(item, "role", role);
    input.role = *known;
    DC_RETURN_IF_ERROR(read_range(item, input.low, input.high));
    DC_RETURN_IF_ERROR(read_labels(item, input));
    if (const JsonValue* guessed = item.find("guessed"); guessed != nullptr) {
      DC_ASSIGN_OR_RETURN(input.guessed, guessed->to_bool());
    }
    if (const JsonValue* ignored = item.find("ignored"); ignored != nullptr) {
      DC_ASSIGN_OR_RETURN(input.ignored, ignored->to_integer());
    }
    description.inputs.push_back(std::move(input));
  }
  return base::ok_status();
}

// Absent: no row.
Status read_zero_row(const JsonValue& value, ir::Initializer& initializer) {
  const JsonValue* row = value.find("zero_row");
  if (row == nullptr) return base::ok_status();
  DC_ASSIGN_OR_RETURN(initializer.zero_row, row->to_integer());
  if (initializer.zero_row >= 0) return base::ok_status();
  return negative(*row, "zero_row", "the index of a row");
}

Result<ir::Initializer> read_initializer(const JsonValue& value) {
  ir::Initializer initializer;
  DC_ASSIGN_OR_RETURN(const std::string kind, text_member(value, "kind"));
  const std::optional<ir::InitKind> known = ir::from_word<ir::InitKind>(kind);
  if (!known) return unknown_word(value, "initializer", kind);
  initializer.kind = *known;
  switch (*known) {
    case ir::InitKind::Normal: {
      DC_ASSIGN_OR_RETURN(initializer.a, real_member(value, "mean"));
      DC_ASSIGN_OR_RETURN(initializer.b, real_member(value, "std"));
      if (initializer.b < 0) return negative(value, "std", "a standard deviation");
      break;
    }
    case ir::InitKind::Uniform: {
      DC_RETURN_IF_ERROR(read_range(value, initializer.a, initializer.b));
      break;
    }
    case ir::InitKind::Constant: {
      DC_ASSIGN_OR_RETURN(initializer.a, real_member(value, "value"));
      break;
    }
    case ir::InitKind::Unknown:
    case ir::InitKind::Zeros:
    case ir::InitKind::Ones:
      break;
  }
  DC_RETURN_IF_ERROR(read_zero_row(value, initializer));
  return initializer;
}

Status read_training(const JsonValue& value, Description& description) {
  description.has_optimizer = value.find("optimizer") != nullptr;
  const Result<base::TrainConfig> training = base::parse_train_config(value);
  if (!training.ok()) return Status(ErrorKind::BadInput, "DC2033", training.status().sentence());
  description.training = *training;
  return base::ok_status();
}

Status read_member(const std::string& key, const JsonValue& value, Description& description) {
  if (key == "version") {
    DC_ASSIGN_OR_RETURN(const int64_t version, value.to_integer());
    if (version == kDescriptionVersion) return base::ok_status();
    return Status(ErrorKind::BadInput, "DC2032",
                  "the description has version " + std::to_string(version) + "; this dcc reads " +
                      std::to_string(kDescriptionVersion) +
                      ": export again with the scripts of this dcc");
  }
  if (key == "inputs") return read_inputs(value, description);
  if (key == "optimizer") return read_training(value, description);
  if (key == "loss_scale") {
    DC_ASSIGN_OR_RETURN(description.loss_scale, value.to_string());
  } else if (key == "aliases") {
    DC_ASSIGN_OR_RETURN(const auto* members, value.to_object());
    for (const auto& [alias, canonical] : *members) {
      DC_ASSIGN_OR_RETURN(description.aliases[alias], canonical.to_string());
    }
  } else if (key == "dims") {
    DC_ASSIGN_OR_RETURN(const auto* members, value.to_object());
    for (const auto& [name, symbol] : *members) {
      DC_ASSIGN_OR_RETURN(description.dims[name], symbol.to_string());
    }
  } else if (key == "guards") {
    DC_ASSIGN_OR_RETURN(const auto* items, value.to_array());
    for (const auto& item : *items) {
      DC_ASSIGN_OR_RETURN(description.guards.emplace_back(), item.to_string());
    }
  } else if (key == "initializers") {
    DC_ASSIGN_OR_RETURN(const auto* members, value.to_object());
    for (const auto& [fqn, initializer] : *members) {
      DC_ASSIGN_OR_RETURN(description.initializers[fqn], read_initializer(initializer));
    }
  } else if (key == "notes") {
    DC_ASSIGN_OR_RETURN(const auto* sentences, value.to_array());
    for (const JsonValue& sentence : *sentences) {
      DC_ASSIGN_OR_RETURN(std::string text, sentence.to_string());
      description.notes.push_back(std::move(text));
    }
  }
  return base::ok_status();  // other keys are information for people
}

}  // namespace

Result<Description> read_description(std::string_view json, const std::string& what) {
  DC_ASSIGN_OR_RETURN(const JsonValue document, base::parse_json_value(json, what));
  Description description;
  const Result<const std::vector<JsonValue::Member>*> members = document.to_object();
  if (!members.ok()) return Status(members.status()).add_context("in " + what);
  for (const auto& [key, value] : **members) {
    Status status = read_member(key, value, description);
    if (!status.ok()) {
      std::string where = "in '";
      return status.add_context(where.append(key).append("' of ").append(what));
    }
  }
  return description;
}

}  // namespace dc::frontend
