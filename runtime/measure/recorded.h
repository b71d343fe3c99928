// Measures a plan in the running step: what `dcrun --record-profile` writes down.
//
// Every instruction is timed where it runs, among its neighbours and next to what the other streams
// do. A figure is the slowest rank's median over the steps; the first steps are not counted.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/exec/trace.h"
#include "src/base/measurements.h"
#include "src/base/status.h"

namespace dc::runtime::measure {

inline constexpr int kRecordedWarmup = 2;  // steps that are not counted
inline constexpr int kRecordedSteps = 3;   // the fewest that make a profile
inline constexpr int kFewestSteps = kRecordedWarmup + kRecordedSteps;  // that a run must make

struct Recorded {
  int32_t steps = 0;     // counted
  base::Timing step;     // from where compute begins to where it begins again
  base::Timing compute;  // its part in which compute ran: no collectives and no waits for them
  std::vector<std::vector<base::Timing>> instructions;   // by program; no samples: not recorded
  std::vector<base::KernelMeasurement> kernels;          // by key; workspace left empty
  std::vector<base::CollectiveMeasurement> collectives;  // by kind, then bytes on the wire
};

// Collective. `trace` holds this rank's records. Unavailable (69) when fewer than kRecordedSteps
// steps were recorded after the warm-up.
base::Result<Recorded> measure_recorded(const plan::Plan& plan, const exec::TraceRecorder& trace,
                                        comm::Communicator& control);

// How a part of the step went against the plan's prediction, over all its instructions and runs.
struct Deviation {
  int64_t measured_ns = 0, predicted_ns = 0;  // per step
  // By which factor all of it is off, less 1: what a new profile corrects. 0 without prediction.
  double bias = 0;
  // What then remains, instruction by instruction: the sum of |measured - (1 + bias) predicted| as
  // a part of what was measured.
  double residual = 0;
};
struct Deviations {
  Deviation step;  // its residual is 0: there is one figure only
  Deviation kernels, collectives;
};
// The plan must have a timeline (runtime/plan/timeline.h).
Deviations compare(const plan::Plan& plan, const Recorded& recorded);

}  // namespace dc::runtime::measure
