// Workloads from a plan, for questions about a plan whose model is not at hand.
#pragma once

#include <array>
#include <vector>

#include "runtime/plan/plan.h"
#include "src/base/status.h"
#include "src/sim/workload.h"

namespace dc::sim {

struct PlannedProgram {
  Workload workload;                                       // origins are instruction indices
  std::vector<int64_t> sent;                               // by transfer: bytes of one rank, about
  std::array<base::Nanos, cost::kSources> time_by_source;  // serial, of one run
  int32_t repeat = 1;
};

// The programs of a verified plan, in the order of the step. Unsupported (81), DC7101, for a plan
// whose streams wait for each other otherwise than this compiler's do: compute hands out transfers
// and waits for them.
base::Result<std::vector<PlannedProgram>> planned_programs(const runtime::plan::Plan& plan,
                                                           const cost::CostModel& cost);

// Bytes of device memory that the plan keeps from step to step.
base::Bytes kept_on_device(const runtime::plan::Plan& plan);

}  // namespace dc::sim
