// Reads model.pt2, a training step exported by PyTorch, into the IR.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/base/train_config.h"
#include "src/ir/step.h"

namespace dc::frontend {

// The size of a dim of dynamic shapes, by its name, its symbol, or input and position ("ids.0").
struct DimSize {
  std::string name;
  int64_t size = 0;
};

struct ImportOptions {
  base::TrainConfig config;                   // overrides the archive's own description
  std::vector<std::string>* notes = nullptr;  // filled with what was assumed, one sentence each
  std::vector<DimSize> dims = {};             // every dim of an archive with dynamic shapes
  std::string config_path = {};               // of `config`, for errors; empty: from no file
};

// The result is at stage Imported: one functional graph of forward, loss and backward of one
// micro-batch on one rank; parameters, buffers and inputs described; the optimizer configured.
base::Result<ir::Step> import_archive(const std::string& path, const ImportOptions& options = {});

}  // namespace dc::frontend
