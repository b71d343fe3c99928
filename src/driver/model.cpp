#include "src/driver/model.h"

#include <charconv>

#include "src/frontend/import.h"

namespace dc::driver {
namespace {

// Everything of the optimizer that can change a plan, in one canonical line.
std::string canonical(const ir::Optimizer& optimizer) {
  ir::Step only;
  only.name = "optimizer";
  only.optimizer = optimizer;
  return ir::print(only);
}

// "batch=4"
base::Result<frontend::DimSize> read_dim(const std::string& text) {
  const size_t at = text.find('=');
  frontend::DimSize dim{text.substr(0, at), 0};
  const char* end = text.data() + text.size();
  const bool has_size =
      at != std::string::npos && at > 0 &&
      std::from_chars(text.data() + at + 1, end, dim.size) == std::from_chars_result{end, {}};
  if (has_size && dim.size > 0) return dim;
  return base::Status(base::ErrorKind::Usage, "DC7030",
                      "--dim " + text + " is no dim with a size; write it as in --dim batch=4");
}

}  // namespace

base::Result<Model> read_model(const std::string& path, const std::string& config,
                               const std::vector<std::string>& dims) {
  Model model;
  frontend::ImportOptions options;
  options.notes = &model.notes;
  if (!config.empty()) {
    DC_ASSIGN_OR_RETURN(options.config, base::read_train_config(config));
    options.config_path = config;
  }
  for (const std::string& text : dims) {
    DC_ASSIGN_OR_RETURN(options.dims.emplace_back(), read_dim(text));
  }
  DC_ASSIGN_OR_RETURN(model.step, frontend::import_archive(path, options));
  model.config = canonical(model.step.optimizer);
  return model;
}

}  // namespace dc::driver
