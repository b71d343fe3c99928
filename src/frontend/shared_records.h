// Tensors of an archive that lie in the same bytes without being one parameter.
#pragma once

#include <map>
#include <string>

#include "src/base/status.h"
#include "src/frontend/raw_model.h"
#include "src/frontend/weights.h"

namespace dc::frontend {

// BadInput (DC2057) if a parameter that the step trains shares elements with another parameter or
// buffer: in PyTorch that one follows its updates, in a plan each has its own memory. `ties`: names
// that are one parameter.
base::Status check_shared_records(const RawModel& model,
                                  const std::map<std::string, std::string>& ties,
                                  const Weights& weights);

}  // namespace dc::frontend
