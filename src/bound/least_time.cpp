#include "src/bound/least_time.h"

#include <algorithm>
#include <cmath>

namespace dc::bound {

using base::Bytes;

void LeastTime::add_contention(cost::Contention found) {
  any_ = true;
  contention_.compute = std::min(contention_.compute, found.compute);
  contention_.collective = std::min(contention_.collective, found.collective);
}

Work LeastTime::collective(cost::Collective kind, Bytes bytes, cost::Group group) {
  const auto [at, is_new] = known_.try_emplace({kind, bytes.v, group.size, group.level}, Work{});
  if (!is_new || bytes.v <= 0) return at->second;
  const auto largest = buckets_.find(kind);
  const int64_t most = largest == buckets_.end() ? 0 : largest->second.v;
  std::vector<Bytes> sizes = {bytes, {std::max(most, bytes.v)}};
  for (const Bytes size : cost_.bends(kind, group)) {
    if (size > sizes[0] && size < sizes[1]) sizes.push_back(size);
  }
  std::sort(sizes.begin(), sizes.end());
  const auto time_of = [&](Bytes size) {
    return static_cast<double>(cost_.collective(kind, size, group).time.v);
  };
  // Figures are rounded down, and for groups that were not measured sizes are rounded first: at the
  // bends, and between them.
  double steepest = 0;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    const auto bytes_more = static_cast<double>(sizes[i + 1].v - sizes[i].v);
    if (bytes_more <= 0) continue;
    steepest = std::max(steepest, std::abs(time_of(sizes[i + 1]) - time_of(sizes[i])) / bytes_more);
  }
  const auto latency = static_cast<double>(cost_.latency(kind, group).v);
  double time = HUGE_VAL, wire = HUGE_VAL;
  for (const Bytes size : sizes) {
    const double whole = time_of(size) - 2 * (1 + steepest);
    const double part = static_cast<double>(bytes.v) / static_cast<double>(size.v);
    time = std::min(time, std::max(0.0, whole) * part);
    wire = std::min(wire, std::max(0.0, whole - latency) * part);
    add_contention(cost_.contention(kind, size, group));
  }
  Work work;
  work[group.level == cost::Level::Across ? Resource::HostQueue : Resource::Queue] = time;
  work[group.level == cost::Level::Inside ? Resource::Inside : Resource::Ranks] = wire;
  return at->second = work;
}

Work LeastTime::copy(Bytes bytes, ir::Space from, ir::Space to) const {
  Work work;
  work[to == ir::Space::Device ? Resource::FromHost : Resource::ToHost] =
      static_cast<double>(cost_.copy(bytes, from, to).time.v);
  return work;
}

}  // namespace dc::bound
