// Reads what `dcrun --trace` wrote, for tools that lay it beside the plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plan/file.h"
#include "src/base/status.h"

namespace dc::runtime {

struct TraceEvent {
  int32_t rank = 0, stream = 0;
  int32_t step = 0;  // 1 for the first
  int32_t run = 0;   // of programs, within the step; 0 for the first
  int32_t program = 0, instruction = 0;
  int64_t begin_ns = 0, end_ns = 0;
};

struct TraceFile {
  std::string communicator;
  int32_t ranks = 0;
  std::vector<TraceEvent> events;  // in the file's order: by rank, then stream, then time
};

// BadInput (65) if the file is no trace or names what the plan lacks, Mismatch (76) if it is of
// another plan, MissingInput (66).
base::Result<TraceFile> read_trace(const std::string& path, const plan::Loaded& loaded);

}  // namespace dc::runtime
