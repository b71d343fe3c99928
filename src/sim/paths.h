// Paths through a workload: how early each event can begin, and how much must come after it.
#pragma once

#include <vector>

#include "src/sim/workload.h"

namespace dc::sim {

struct Paths {
  std::vector<base::Nanos> head;  // by event: no schedule begins it (a start: its transfer) earlier
  std::vector<base::Nanos> tail;  // by event: no schedule ends sooner after its end
};

// Longest paths. At a limited number of joins `head` is also at least the load of the busiest
// stream or link by all events before the join; at as many forks `tail` likewise, by all events
// after. Done events take no time. `waits_for_norm` false: ignores that the update waits for the
// norm of all gradients.
Paths paths(const Workload& workload, const Precedence& precedence, bool waits_for_norm = true);

}  // namespace dc::sim
