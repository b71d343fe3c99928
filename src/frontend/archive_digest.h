// A quick identity of a model archive, without parsing its graph: for the first level of the plan
// cache.
#pragma once

#include <string>

#include "src/base/status.h"

namespace dc::frontend {

// SHA-256 over the contents of the graph, signature, constants and description; weights, sample
// inputs, file name and entry order do not count. Hex.
base::Result<std::string> archive_digest(const std::string& path);

}  // namespace dc::frontend
