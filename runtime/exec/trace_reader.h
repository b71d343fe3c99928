// Reads what `dcrun --trace` wrote, for tools that lay it next to the plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/exec/trace.h"
#include "runtime/plan/file.h"
#include "src/base/status.h"

namespace dc::runtime::exec {

struct TraceFile {
  std::string communicator;
  int32_t ranks = 0;
  std::vector<TraceEvent> events;  // in the file's order: by rank, then stream, then time
};

// BadInput (65) if the file is no trace or names what the plan lacks, Mismatch (76) if it is of
// another plan, MissingInput (66).
base::Result<TraceFile> read_trace(const std::string& path, const plan::Loaded& loaded);

}  // namespace dc::runtime::exec
