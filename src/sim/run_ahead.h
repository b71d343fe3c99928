// How far gathers can run ahead of their use: under a memory budget, with kernels in their order.
#pragma once

#include "src/sim/workload.h"

namespace dc::sim {

struct RunAhead {
  int32_t last_kernel = -1;  // event: the last kernel that keeps its order; -1: none
  base::Nanos end;           // it cannot end earlier
};

// A relaxation: a gather may be cut anywhere, reductions and small kernels take no time, and only
// what is sure to be alive counts: each transient from the first to the last kernel that touches
// it. `room` is what transients and workspace may take.
RunAhead run_ahead(const Workload& workload, const Precedence& precedence, base::Bytes room);

}  // namespace dc::sim
