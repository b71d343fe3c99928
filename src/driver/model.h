// A model as compile and profile read it: archive, training configuration, what was assumed.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/ir/step.h"

namespace dc::driver {

struct Model {
  ir::Step step;       // imported, optimizer configured
  std::string config;  // canonical text of the training configuration, part of the cache key
  std::vector<std::string> notes;  // what was assumed, one sentence each
};

// `config`: path of a train.json that overrides the archive's own description, or empty. `dims`:
// sizes of dynamic dims, each "name=size".
base::Result<Model> read_model(const std::string& path, const std::string& config,
                               const std::vector<std::string>& dims);

}  // namespace dc::driver
