// ByteRange: bytes [begin, end) of some memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace dc::base {

struct ByteRange {
  int64_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};

// The same bytes as ascending ranges that neither overlap nor touch; empty ones are left out.
inline std::vector<ByteRange> merged(std::vector<ByteRange> ranges) {
  std::erase_if(ranges, [](const ByteRange& range) { return range.begin >= range.end; });
  std::sort(ranges.begin(), ranges.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  std::vector<ByteRange> kept;
  for (const ByteRange& range : ranges) {
    if (kept.empty() || kept.back().end < range.begin) {
      kept.push_back(range);
    } else {
      kept.back().end = std::max(kept.back().end, range.end);
    }
  }
  return kept;
}

}  // namespace dc::base
