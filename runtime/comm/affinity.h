// Pins each rank of a host to separate cores. Without pinning the scheduler may put two ranks on
// one core, which makes every barrier a hundred times slower.
#pragma once

#include <vector>

namespace dc::runtime::comm {

struct Core {
  int cpu = 0;   // number of the logical processor
  int twin = 0;  // equal for logical processors of one physical core
};

// The processors that rank `local_rank` of `local_world` gets out of those allowed: disjoint
// between ranks, whole physical cores first, at least `threads` and at most one more (for the
// communication stream). Empty if there are not enough for all.
std::vector<int> choose_cores(std::vector<Core> allowed, int local_rank, int local_world,
                              int threads);

// Binds this process, before it has threads, to its share of the processors it may use. False:
// nothing was changed.
bool pin_rank(int local_rank, int local_world, int threads);

}  // namespace dc::runtime::comm
