#include "runtime/measure/hosts.h"

#include <array>

namespace dc::runtime::measure {

base::Result<int> ranks_per_host(const comm::LaunchInfo& launch, comm::Communicator& control) {
  const std::array<int32_t, 2> mine = {launch.local_rank, launch.local_world};
  std::vector<std::array<int32_t, 2>> all(static_cast<size_t>(control.size()));
  DC_RETURN_IF_ERROR(control.exchange(mine.data(), sizeof(mine), all.data()));
  const int per_host = all[0][1];
  if (per_host < 1 || control.size() % per_host != 0) return 0;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto place = static_cast<int>(rank) % per_host;
    if (all[rank][0] != place || all[rank][1] != per_host) return 0;
  }
  return per_host;
}

std::vector<int> ranks_at(base::CollectiveLevel level, int per_host, int rank, int world) {
  std::vector<int> ranks;
  for (int other = 0; other < world; ++other) {
    const bool same_host = other / per_host == rank / per_host;
    const bool same_place = other % per_host == rank % per_host;
    const bool is_member = level == base::CollectiveLevel::World ||
                           (level == base::CollectiveLevel::Inside ? same_host : same_place);
    if (is_member) ranks.push_back(other);
  }
  return ranks;
}

}  // namespace dc::runtime::measure
