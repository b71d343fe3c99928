// What-if: a plan's step on another machine, without compiling it again.
#pragma once

#include <optional>

#include "src/sim/bounds.h"
#include "src/sim/plan_workload.h"

namespace dc::sim {

struct WhatIf {
  std::optional<int> world;                // must be the plan's: shards and buffers are part of it
  std::optional<base::Bytes> memory;       // of a rank's device
  std::optional<int64_t> link_per_second;  // bytes that one rank sends
};

struct Simulated {
  runtime::plan::Prediction prediction;  // times, bounds and origins of figures; no bytes
  base::Nanos exposed;                   // compute waited for transfers, in a step
  base::Bytes arena;                     // that the plan takes on the device
  base::Bytes memory;              // the budget of bound within_memory: as asked, else the arena
  base::Nanos within_more_memory;  // with a GiB more
  // Bytes that one rank sends in a second while a collective is on the wire; 0: no collectives.
  int64_t link_per_second = 0;
  base::Nanos time_with_faster_link;  // with 1e9 bytes a second more
};

// The plan must be verified. BadConfig (78), DC7102: another world. OutOfMemory (80), DC7103: the
// plan takes more than `memory`. As for planned_programs otherwise.
base::Result<Simulated> simulate(const runtime::plan::Plan& plan, const cost::CostModel& cost,
                                 const WhatIf& what_if = {});

}  // namespace dc::sim
