// Which ranks share a host, from what the launcher says of each rank. Names of hosts are not asked:
// containers share them.
#pragma once

#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/launch.h"
#include "src/base/status.h"

namespace dc::runtime::comm {

// The host of each rank, as numbers from 0 in rank order; hosts may have different numbers of
// ranks. Empty unless the ranks of each host follow each other: which hosts others are on is then
// not known. Collective over `control`, of all ranks.
base::Result<std::vector<int>> hosts_of_ranks(const LaunchInfo& launch, Communicator& control);

// Ranks of each host; 0 unless all hosts have equally many.
int ranks_per_host(const std::vector<int>& hosts);

}  // namespace dc::runtime::comm
