#include <algorithm>

#include "src/sim/workload.h"

namespace dc::sim {
namespace {

bool conflict(const Access& a, const Access& b) {
  if (!a.writes && !b.writes) return false;
  return a.part != b.part || (a.first < b.last && b.first < a.last);
}

}  // namespace

Precedence precedence(const Workload& workload) {
  const size_t count = workload.schedule.events.size();
  Precedence result;
  result.first.reserve(count + 1);
  std::vector<std::vector<Access>> open(workload.storages.size());
  std::vector<bool> leaves(workload.schedule.transfers.size());
  for (int32_t transfer : workload.schedule.leaving) leaves[static_cast<size_t>(transfer)] = true;
  size_t next = 0;
  for (size_t event = 0; event < count; ++event) {
    const auto begin = static_cast<std::ptrdiff_t>(result.before.size());
    result.first.push_back(static_cast<int32_t>(begin));
    const size_t mine = next;
    const Event& what = workload.schedule.events[event];
    const bool is_leaving =
        what.kind == EventKind::Start && leaves[static_cast<size_t>(what.transfer)];
    for (; next < workload.accesses.size() &&
           workload.accesses[next].event == static_cast<int32_t>(event);
         ++next) {
      if (is_leaving) continue;
      const Access& access = workload.accesses[next];
      for (const Access& earlier : open[static_cast<size_t>(access.storage)]) {
        if (conflict(earlier, access)) result.before.push_back(earlier.event);
      }
    }
    std::sort(result.before.begin() + begin, result.before.end());
    result.before.erase(std::unique(result.before.begin() + begin, result.before.end()),
                        result.before.end());
    for (size_t i = mine; i < next && !is_leaving; ++i) {
      const Access& access = workload.accesses[i];
      std::vector<Access>& list = open[static_cast<size_t>(access.storage)];
      // Later accesses are ordered behind this write, so the accesses that it covers need not be
      // kept.
      std::erase_if(list, [&](const Access& earlier) {
        return access.writes && access.part == earlier.part && access.first <= earlier.first &&
               earlier.last <= access.last;
      });
      list.push_back(access);
    }
  }
  result.first.push_back(static_cast<int32_t>(result.before.size()));
  return result;
}

}  // namespace dc::sim
