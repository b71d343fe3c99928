// extra/dcc.json: what scripts/export.py knows about the step beyond the graph. Every part may be
// absent; archives of other exporters have none of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/train_config.h"
#include "src/ir/step.h"

namespace dc::frontend {

struct InputDescription {
  std::string name;
  ir::InputRole role = ir::InputRole::Float;
  double low = 0, high = 0;
  bool next = false;  // "labels": "next"
  bool guessed = false;
  int64_t ignored = base::kIgnoredLabel;
};

struct Description {
  std::vector<InputDescription> inputs;
  std::string loss_scale = "loss_scale";                // name of the input
  std::map<std::string, std::string> aliases;           // tied name -> canonical name
  std::map<std::string, ir::Initializer> initializers;  // by FQN
  std::vector<std::string> notes;                       // sentences for the plan's notes
  std::map<std::string, std::string> dims;              // name of a dim -> symbol
  std::vector<std::string> guards;                      // conditions on symbols, in srepr
  base::TrainConfig training;
  bool has_optimizer = false;
};

base::Result<Description> read_description(std::string_view json, const std::string& what);

}  // namespace dc::frontend
