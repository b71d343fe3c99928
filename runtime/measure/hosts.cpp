#include "runtime/measure/hosts.h"

namespace dc::runtime::measure {

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
