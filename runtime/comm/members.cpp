#include "runtime/comm/members.h"

#include <numeric>
#include <string>

#include "runtime/comm/buffers.h"

namespace dc::runtime::comm {

Members all_ranks(int rank, int world) {
  Members members{std::vector<int>(static_cast<size_t>(world)), rank};
  std::iota(members.ranks.begin(), members.ranks.end(), 0);
  return members;
}

base::Result<Members> members_of(std::span<const int> ranks, int rank, int world) {
  Members members{{ranks.begin(), ranks.end()}, -1};
  for (int i = 0; i < members.size(); ++i) {
    if (members.at(i) == rank) members.index = i;
    const bool ascends = i == 0 ? members.at(i) >= 0 : members.at(i) > members.at(i - 1);
    if (ascends && members.at(i) < world) continue;
    members.index = -1;
    break;
  }
  if (members.index >= 0) return members;
  return base::Status(
      base::ErrorKind::Internal, "DC6101",
      "a communicator of rank " + std::to_string(rank) +
          " was asked for with ranks that are not ascending, do not exist or leave "
          "this one out; this is a fault in the plan or in dcrun, please report it");
}

base::Status agree_on_members(Communicator& control, const Members& members) {
  uint64_t own = 0;
  for (const int rank : members.ranks)
    own = fingerprint(Operation::Open, static_cast<int64_t>(own), rank);
  std::vector<uint64_t> all(static_cast<size_t>(control.size()));
  DC_RETURN_IF_ERROR(control.exchange(&own, sizeof(own), all.data()));
  for (const int rank : members.ranks) {
    const uint64_t theirs = all[static_cast<size_t>(rank)];
    if (theirs != own) return ranks_disagree(own, members.own(), theirs, rank);
  }
  return base::ok_status();
}

std::vector<bool> on_other_hosts(const Members& members, const std::vector<int>& hosts) {
  std::vector<bool> others;
  if (hosts.empty()) return others;
  const int own = hosts[static_cast<size_t>(members.own())];
  for (const int rank : members.ranks) others.push_back(hosts[static_cast<size_t>(rank)] != own);
  return others;
}

}  // namespace dc::runtime::comm
