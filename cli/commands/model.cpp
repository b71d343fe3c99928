#include "cli/commands/model.h"

#include "src/frontend/import.h"

namespace dc::cli {
namespace {

// Everything of the optimizer that can change a plan, in one canonical line.
std::string canonical(const ir::Optimizer& optimizer) {
  ir::Step only;
  only.name = "optimizer";
  only.optimizer = optimizer;
  return ir::print(only);
}

}  // namespace

base::Result<Model> read_model(const std::string& path, const std::string& config) {
  Model model;
  frontend::ImportOptions options;
  options.notes = &model.notes;
  if (!config.empty()) {
    DC_ASSIGN_OR_RETURN(options.config, base::read_train_config(config));
  }
  DC_ASSIGN_OR_RETURN(model.step, frontend::import_archive(path, options));
  model.config = canonical(model.step.optimizer);
  return model;
}

}  // namespace dc::cli
