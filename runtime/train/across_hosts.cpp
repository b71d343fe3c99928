#include "runtime/train/across_hosts.h"

namespace dc::runtime::train {

AcrossHosts across_hosts(std::span<const int> hosts, std::span<const int64_t> sent, int64_t step,
                         int64_t steps) {
  AcrossHosts all{step, steps, {}};
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (static_cast<size_t>(hosts[rank]) == all.hosts.size())
      all.hosts.push_back({static_cast<int>(rank), 0, 0});
    ++all.hosts.back().ranks;
    all.hosts.back().bytes += sent[rank];
  }
  return all;
}

std::string shards_across_hosts(const plan::Plan& plan, std::span<const int> hosts) {
  if (plan.mesh.size() < 2 || hosts.empty()) return {};
  const int inside = plan.mesh.back().second;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const size_t first = rank - rank % static_cast<size_t>(inside);
    if (hosts[rank] == hosts[first]) continue;
    return "the plan is for hosts of " + std::to_string(inside) + " ranks, but ranks " +
           std::to_string(first) + " and " + std::to_string(rank) +
           " are on different hosts, so gathers cross hosts; the numbers are the same, for speed "
           "start as many ranks on each host, or compile with --ranks-per-host as it is here";
  }
  return {};
}

}  // namespace dc::runtime::train
