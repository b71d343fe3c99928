// Turns a checked RawModel into the IR's step: state, inputs, nodes, outputs.
#pragma once

#include <map>
#include <string>

#include "src/base/status.h"
#include "src/frontend/archive_files.h"
#include "src/frontend/description.h"
#include "src/frontend/raw_model.h"
#include "src/frontend/weights.h"
#include "src/ir/step.h"

namespace dc::frontend {

struct BuildContext {
  const ArchiveFiles& files;
  const Weights& weights;
  const Description& description;
  const std::map<std::string, std::string>& ties;  // tied name -> canonical name
};

// Inputs get names and types only. Constants and non-persistent buffers up to 64 KiB carry their
// bytes.
base::Result<ir::Step> build_step(RawModel model, const BuildContext& context);

}  // namespace dc::frontend
