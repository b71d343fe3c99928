// What a layout algorithm sees: requests for bytes over inclusive live ranges, and where each was
// put. Nothing here knows about graphs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dc::layout {

// `bytes` live from position `first` to position `last`, both included. Zero bytes take no room.
struct Request {
  int32_t first = 0, last = 0;
  int64_t bytes = 0;
  bool operator==(const Request&) const = default;
};

inline constexpr std::string_view kEjections = "ejections";  // an algorithm

struct Layout {
  std::vector<int64_t> offsets;  // bytes, one per request, multiples of base::kAlignment
  int64_t bytes = 0;             // end of the highest request, rounded to the alignment
  std::string algorithm;         // which algorithm found it
  int rounds = 0;                // how often the requests were placed to find it
};

}  // namespace dc::layout
