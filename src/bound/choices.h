// The choices of a step, as a relaxation.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "src/bound/least_time.h"
#include "src/bound/program_memory.h"
#include "src/bound/relaxation.h"

namespace dc::bound {

struct Allowed {
  std::optional<base::Bytes> budget;  // of the device; empty: no limit
  std::vector<ir::Space> away;        // where values and state may wait; empty: nowhere
  bool recompute = true;              // whether the backward phase may make activations again
  bool one_queue = true;              // whether collectives of one level always share a stream
};

// What a value of so many bytes that waits in one of the spaces costs: a copy out if `out`, and one
// back.
std::vector<Work> trips(const LeastTime& least, const Allowed& allowed, base::Bytes bytes,
                        bool out);

// What kernels make and read: kept, made again in the backward phase, or away. What must be alive
// whatever is chosen goes to the fixed bytes.
void add_activations(const ProgramMemory& memory, const cost::CostModel& cost,
                     const LeastTime& least, const Allowed& allowed, Relaxation& relaxation);

// Where parameters, gradients and optimizer state are. `memories`: of the programs of the step in
// which every parameter that can be is gathered for its uses (ZeRO 3). `others`: the same step with
// other placements (ZeRO 2, ZeRO 0); each parameter may be as in any of them.
void add_placements(std::span<const ProgramMemory> memories,
                    std::span<const std::vector<ProgramView>> others, const cost::CostModel& cost,
                    LeastTime& least, const Allowed& allowed, Relaxation& relaxation);

}  // namespace dc::bound
