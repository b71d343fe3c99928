// How the ranks of a job are spread over hosts, and the groups that follow from it.
#pragma once

#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/launch.h"
#include "src/base/collective_level.h"
#include "src/base/status.h"

namespace dc::runtime::measure {

// As the launcher says. Collective. 0 unless every host has as many ranks, and they follow each
// other.
base::Result<int> ranks_per_host(const comm::LaunchInfo& launch, comm::Communicator& control);
// The rank's group at that level, ascending. `per_host` divides `world`.
std::vector<int> ranks_at(base::CollectiveLevel level, int per_host, int rank, int world);

}  // namespace dc::runtime::measure
