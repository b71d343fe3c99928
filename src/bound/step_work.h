// StepWork: what the nodes of a scheduled step cost at least, by the parameter that they work for.
#pragma once

#include <optional>
#include <vector>

#include "src/bound/least_time.h"
#include "src/bound/program_view.h"

namespace dc::bound {

struct StepWork {
  Work common;            // of the model, and of what no single parameter is the reason of
  std::vector<Work> own;  // by parameter, without its gathers for the model's kernels
  // By parameter: the least of those gathers, with the cast of the shard; empty: none.
  std::vector<std::optional<Work>> gather;
};

// Repeats included. `copies_may_go`: offloading a new value can replace the kernel that rounds or
// copies it, or takes the rounding out of an update.
StepWork work_of(const std::vector<const ProgramView*>& programs, const cost::CostModel& cost,
                 LeastTime& least, bool copies_may_go);

// The smaller one on each resource.
Work smaller(const Work& a, const Work& b);

}  // namespace dc::bound
