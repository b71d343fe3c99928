#include "src/passes/published_rules.h"

#include <algorithm>
#include <numeric>

namespace dc::passes::published {

int64_t usable(int64_t device_memory) {
  return device_memory / 10 * 9 + device_memory % 10 * 9 / 10;
}

int64_t headroom(int64_t usable, int64_t peak) { return std::max<int64_t>(0, usable - peak); }

bool fuse(base::Nanos group, base::Nanos next, base::Nanos fused, int64_t fused_bytes) {
  return std::max(group, next).v * 6 > fused.v * 5 && fused_bytes < kGroupBytes;
}

std::vector<size_t> keep_resident(std::span<const Parameter> parameters, int64_t headroom) {
  std::vector<size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto score = [&](size_t i) {
    const Parameter& parameter = parameters[i];
    return parameter.bytes == 0
               ? 0.0
               : static_cast<double>(parameter.time.v) / static_cast<double>(parameter.bytes);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return score(a) > score(b); });
  size_t kept = 0;
  int64_t used = 0;
  while (kept < order.size() && used + parameters[order[kept]].bytes <= headroom)
    used += parameters[order[kept++]].bytes;
  order.resize(kept);
  return order;
}

}  // namespace dc::passes::published
