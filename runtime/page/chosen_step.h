// The step of a trace that a page shows.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/exec/trace_reader.h"

namespace dc::runtime::page {

struct ChosenStep {
  int32_t step = 0;
  int32_t whole_steps = 0;               // of the trace, on all its ranks
  std::vector<exec::TraceEvent> events;  // of that step, times from the rank's first event on
  std::vector<int32_t> ranks;            // in the trace, ascending
};

// Considers the steps that the trace holds whole on every rank, and returns the one with the
// median duration on the first rank (the lower median of an even number). BadInput (65) if there
// is none.
base::Result<ChosenStep> choose_step(const exec::TraceFile& trace);

}  // namespace dc::runtime::page
