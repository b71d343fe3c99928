#include "runtime/comm/hosts.h"

#include <algorithm>

namespace dc::runtime::comm {

base::Result<std::vector<int>> hosts_of_ranks(const LaunchInfo& launch, Communicator& control) {
  struct Place {
    int32_t local_rank = 0, local_world = 1;
  };
  const Place mine{launch.local_rank, launch.local_world};
  std::vector<Place> places(static_cast<size_t>(control.size()));
  DC_RETURN_IF_ERROR(control.exchange(&mine, sizeof(mine), places.data()));
  std::vector<int> hosts;
  const std::vector<int> unknown;
  for (int host = 0; hosts.size() < places.size(); ++host) {
    const size_t first = hosts.size();
    const auto ranks = static_cast<size_t>(std::max(places[first].local_world, 1));
    if (first + ranks > places.size()) return unknown;
    for (size_t i = 0; i < ranks; ++i) {
      const Place& place = places[first + i];
      if (place.local_rank != static_cast<int32_t>(i)) return unknown;
      if (place.local_world != static_cast<int32_t>(ranks)) return unknown;
      hosts.push_back(host);
    }
  }
  return hosts;
}

int ranks_per_host(const std::vector<int>& hosts) {
  if (hosts.empty()) return 0;
  const size_t count = static_cast<size_t>(hosts.back()) + 1, each = hosts.size() / count;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank] != static_cast<int>(rank / each)) return 0;
  }
  return static_cast<int>(each);
}

}  // namespace dc::runtime::comm
