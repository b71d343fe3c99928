#include "src/passes/published/published_rules.h"

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

int64_t usable_beside_states(int64_t device_memory) {
  return device_memory / 10 * 8 + device_memory % 10 * 8 / 10;
}

size_t states_that_leave(std::span<const int64_t> peaks, std::span<const int64_t> states,
                         int64_t budget) {
  int64_t resident = std::accumulate(states.begin(), states.end(), int64_t{0});
  size_t left = 0;
  for (const int64_t peak : peaks) {
    while (left < states.size() && budget - peak - resident < 0) resident -= states[left++];
  }
  return left;
}

std::vector<size_t> states_that_return(std::span<const int64_t> peaks,
                                       std::span<const int64_t> states, int64_t budget) {
  std::vector<int64_t> to_come(peaks.begin(), peaks.end());
  for (size_t i = to_come.size(); i-- > 1;) to_come[i - 1] = std::max(to_come[i - 1], to_come[i]);
  std::vector<size_t> after;
  int64_t reloaded = 0;
  for (size_t i = 0; i < to_come.size(); ++i) {
    while (after.size() < states.size() && budget > to_come[i] + reloaded + states[after.size()]) {
      reloaded += states[after.size()];
      after.push_back(i);
    }
  }
  after.resize(states.size(), peaks.size());
  return after;
}

size_t reload_ahead(std::span<const BackwardNode> before, int64_t bytes, base::Nanos copy,
                    int64_t reloaded, int64_t budget) {
  base::Nanos hidden;
  size_t ahead = 0;
  while (ahead < before.size() && hidden < copy) {
    const BackwardNode& node = before[before.size() - 1 - ahead];
    if (node.peak + reloaded + bytes > budget) break;
    hidden += node.time;
    ++ahead;
  }
  return ahead;
}

std::vector<size_t> activations_that_stay(std::span<const int64_t> sizes, int64_t headroom) {
  std::vector<size_t> order(sizes.size()), stay;
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  for (const size_t i : order) {
    if (sizes[i] > headroom) continue;
    headroom -= sizes[i];
    stay.push_back(i);
  }
  return stay;
}

}  // namespace dc::passes::published
