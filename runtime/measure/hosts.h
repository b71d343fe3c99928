// The groups of ranks that follow from how the ranks of a job are spread over hosts.
#pragma once

#include <vector>

#include "src/base/collective_level.h"

namespace dc::runtime::measure {

// The rank's group at that level, ascending. `per_host` divides `world`.
std::vector<int> ranks_at(base::CollectiveLevel level, int per_host, int rank, int world);

}  // namespace dc::runtime::measure
