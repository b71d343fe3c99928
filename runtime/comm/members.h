// The ranks of one communicator: all of a job, or some.
#pragma once

#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "src/base/status.h"

namespace dc::runtime::comm {

struct Members {
  std::vector<int> ranks;  // of the job, ascending
  int index = 0;           // of this rank in them
  int size() const { return static_cast<int>(ranks.size()); }
  int own() const { return at(index); }
  int at(int member) const { return ranks[static_cast<size_t>(member)]; }
};

Members all_ranks(int rank, int world);
// Internal (our bug) unless the ranks are ascending, exist, and `rank` is one of them.
base::Result<Members> members_of(std::span<const int> ranks, int rank, int world);
// Collective over `control`, of all ranks: the members must name the same members. DC6102
// otherwise. No rank comes back before all are there.
base::Status agree_on_members(Communicator& control, const Members& members);
// By member: whether it is on another host than this rank. `hosts`: the host of each rank of the
// job; the result is empty where that is.
std::vector<bool> on_other_hosts(const Members& members, const std::vector<int>& hosts);

}  // namespace dc::runtime::comm
