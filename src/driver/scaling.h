// scaling: the predicted step for several numbers of ranks and of micro-batches, under one set of
// decisions: those of a plan, applied again without a search, or those of options.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "src/driver/compile.h"

namespace dc::driver {

struct ScalingRequest {
  // Its world and accumulation are left aside. With a plan its options are too, but for the budget
  // of the device, which then takes the place of the plan's.
  CompileRequest compile;
  std::optional<runtime::plan::Plan> plan;  // verified
  std::vector<int> worlds;                  // empty: the plan's
  std::vector<int> accumulations;           // micro-batches per step; empty: the plan's, else 1
  std::optional<int64_t> link_per_second;   // bytes that one rank sends; empty: as the profile says
};

struct ScalingRow {
  int world = 1, accumulation = 1;
  // Why there is no such step; OutOfMemory (80): there is one, above the budget.
  base::Status why;
  base::Nanos step, exposed;  // exposed: compute waited for transfers
  base::Bytes memory;         // of the device, per rank; 0: there is no step
  double efficiency = 0;      // micro-batches per second and rank, as a part of those of `base`

  bool has_step() const { return memory.v > 0; }
  double micro_batches_per_second() const;  // on all ranks
};

struct Scaling {
  std::optional<ScalingRow> base;     // the plan; without one the first row that has a step
  std::vector<ScalingRow> rows;       // world by world
  std::optional<base::Bytes> budget;  // of the device
};

// Hears after each row how many of them are done.
using RowDone = std::function<void(int done, int all)>;

// Errors: those of read_model() and check_is_of(); Usage (64), DC2801, for a world or accumulation
// that is none. What only one row cannot do is in that row.
base::Result<Scaling> scaling(const ScalingRequest& request, Stopwatch& watch,
                              const RowDone& done = {});

}  // namespace dc::driver
