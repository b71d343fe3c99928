#include "tests/random/eager.h"

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "src/base/file.h"
#include "src/base/json.h"

namespace dc::test {
namespace {

using base::JsonValue;
using base::Result;

Result<std::vector<double>> numbers(const JsonValue& list) {
  std::vector<double> values;
  for (const JsonValue& item : list.items()) {
    DC_ASSIGN_OR_RETURN(const double value, item.to_real());
    values.push_back(value);
  }
  return values;
}

Result<EagerRun> read_run(const JsonValue& object, const std::string& model) {
  EagerRun run;
  run.facts.model = model;
  const auto number = [&](const char* key) -> Result<double> {
    DC_ASSIGN_OR_RETURN(const JsonValue* value, object.require(key));
    return value->to_real();
  };
  DC_ASSIGN_OR_RETURN(const double world, number("world"));
  DC_ASSIGN_OR_RETURN(const double accumulation, number("accumulation"));
  run.facts.world = static_cast<int>(world);
  run.facts.accumulation = static_cast<int>(accumulation);
  DC_ASSIGN_OR_RETURN(const JsonValue* optimizer, object.require("optimizer"));
  DC_ASSIGN_OR_RETURN(const std::string kind, optimizer->to_string());
  run.facts.sgd = kind == "sgd";
  DC_ASSIGN_OR_RETURN(const JsonValue* clip, object.require("clip"));
  DC_ASSIGN_OR_RETURN(run.facts.clip, clip->to_bool());
  DC_ASSIGN_OR_RETURN(const JsonValue* losses, object.require("losses"));
  DC_ASSIGN_OR_RETURN(run.losses, numbers(*losses));
  DC_ASSIGN_OR_RETURN(const JsonValue* norms, object.require("norms"));
  DC_ASSIGN_OR_RETURN(run.norms, numbers(*norms));
  DC_ASSIGN_OR_RETURN(run.loss_bound, number("loss_bound"));
  DC_ASSIGN_OR_RETURN(run.norm_bound, number("norm_bound"));
  run.facts = run.facts.reference();
  return run;
}

bool is_near(double ours, double theirs, double bound) {
  return std::abs(ours - theirs) <= bound * std::abs(theirs);
}

}  // namespace

Result<std::vector<EagerRun>> eager_runs(const std::string& folder, const std::string& model) {
  std::vector<EagerRun> runs;
  const std::string path =
      folder + "/" + std::filesystem::path(model).stem().string() + ".eager.json";
  if (!std::filesystem::exists(path)) return runs;
  DC_ASSIGN_OR_RETURN(const std::string text, base::read_file(path));
  DC_ASSIGN_OR_RETURN(const JsonValue document, base::parse_json_value(text, path));
  DC_ASSIGN_OR_RETURN(const JsonValue* cases, document.require("cases"));
  for (const JsonValue& one : cases->items()) {
    DC_ASSIGN_OR_RETURN(EagerRun run, read_run(one, model));
    runs.push_back(std::move(run));
  }
  return runs;
}

std::string difference(const EagerRun& eager, const Numbers& ours) {
  if (ours.steps.size() != eager.losses.size()) return "number of steps";
  for (size_t i = 0; i < ours.steps.size(); ++i) {
    double loss = 0, norm = 0;
    if (std::sscanf(ours.steps[i].c_str(), "\"loss\":%lf,\"grad_norm\":%lf", &loss, &norm) != 2)
      return "no numbers in '" + ours.steps[i] + "'";
    if (is_near(loss, eager.losses[i], eager.loss_bound) &&
        is_near(norm, eager.norms[i], eager.norm_bound))
      continue;
    char text[200];
    std::snprintf(text, sizeof text,
                  "step %zu: loss %.9g against %.9g (bound %.1e), norm %.9g against %.9g (%.1e)",
                  i + 1, loss, eager.losses[i], eager.loss_bound, norm, eager.norms[i],
                  eager.norm_bound);
    return text;
  }
  return "";
}

}  // namespace dc::test
