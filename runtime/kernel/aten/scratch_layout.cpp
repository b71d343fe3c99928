#include "runtime/kernel/aten/scratch_layout.h"

#include <algorithm>

namespace dc::runtime::kernel::aten {
namespace {

int64_t rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

ScratchLayout first_fit(const std::vector<Allocation>& allocations,
                        const std::vector<size_t>& order) {
  ScratchLayout layout;
  layout.offsets.assign(allocations.size(), -1);
  std::vector<size_t> placed;
  for (size_t index : order) {
    const int64_t bytes = rounded(allocations[index].bytes);
    std::vector<std::pair<int64_t, int64_t>> taken;  // begin, end
    for (size_t other : placed) {
      if (!overlap_in_time(allocations[index], allocations[other])) continue;
      const int64_t start = layout.offsets[other];
      taken.emplace_back(start, start + rounded(allocations[other].bytes));
    }
    std::sort(taken.begin(), taken.end());
    int64_t offset = 0;
    for (const auto& [start, end] : taken) {
      if (start >= offset + bytes) break;
      offset = std::max(offset, end);
    }
    layout.offsets[index] = offset;
    layout.bytes = std::max(layout.bytes, offset + bytes);
    placed.push_back(index);
  }
  return layout;
}

}  // namespace

ScratchLayout lay_out_scratch(const std::vector<Allocation>& allocations,
                              const std::vector<bool>& is_scratch) {
  std::vector<size_t> by_birth;
  for (size_t i = 0; i < allocations.size(); ++i) {
    if (is_scratch[i]) by_birth.push_back(i);
  }
  std::vector<size_t> by_size = by_birth;
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return allocations[a].bytes > allocations[b].bytes; });
  ScratchLayout births = first_fit(allocations, by_birth);
  ScratchLayout sizes = first_fit(allocations, by_size);
  return sizes.bytes < births.bytes ? sizes : births;
}

}  // namespace dc::runtime::kernel::aten
