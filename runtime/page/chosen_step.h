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

// Of the steps that are in the trace from begin to end on every rank, the one whose duration on the
// first rank is the median (the shorter of two). BadInput (65) if there is none.
base::Result<ChosenStep> choose_step(const exec::TraceFile& trace);

}  // namespace dc::runtime::page
