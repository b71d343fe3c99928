#include "src/layout/check.h"

#include <algorithm>
#include <map>

#include "src/base/units.h"

namespace dc::layout {
namespace {

using base::ErrorKind;
using base::Status;

Status check_bounds(std::span<const Request> requests, const Layout& layout) {
  if (layout.offsets.size() != requests.size()) {
    return Status(ErrorKind::Internal, "DC7001",
                  "the layout has " + std::to_string(layout.offsets.size()) + " offsets for " +
                      std::to_string(requests.size()) + " requests");
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    int64_t offset = layout.offsets[i];
    if (offset < 0 || offset % base::kAlignment != 0 || offset + requests[i].bytes > layout.bytes) {
      return Status(ErrorKind::Internal, "DC7002",
                    "request " + std::to_string(i) + " of " + std::to_string(requests[i].bytes) +
                        " bytes lies at offset " + std::to_string(offset) + " of an arena of " +
                        std::to_string(layout.bytes) + " bytes");
    }
  }
  return base::ok_status();
}

Status overlap(size_t a, size_t b, int32_t position) {
  return Status(ErrorKind::Internal, "DC7003",
                "requests " + std::to_string(std::min(a, b)) + " and " +
                    std::to_string(std::max(a, b)) + " overlap at position " +
                    std::to_string(position));
}

}  // namespace

Status check(std::span<const Request> requests, const Layout& layout) {
  DC_RETURN_IF_ERROR(check_bounds(requests, layout));
  std::vector<size_t> starts, ends;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].bytes > 0 && requests[i].first <= requests[i].last) starts.push_back(i);
  }
  ends = starts;
  std::stable_sort(starts.begin(), starts.end(),
                   [&](size_t a, size_t b) { return requests[a].first < requests[b].first; });
  std::stable_sort(ends.begin(), ends.end(),
                   [&](size_t a, size_t b) { return requests[a].last < requests[b].last; });
  std::map<int64_t, size_t> live;  // offset -> request
  size_t ended = 0;
  for (size_t i : starts) {
    for (; requests[ends[ended]].last < requests[i].first; ++ended)
      live.erase(layout.offsets[ends[ended]]);
    auto [at, inserted] = live.emplace(layout.offsets[i], i);
    if (!inserted) return overlap(at->second, i, requests[i].first);
    auto after = std::next(at);
    if (after != live.end() && layout.offsets[i] + requests[i].bytes > after->first)
      return overlap(after->second, i, requests[i].first);
    if (at == live.begin()) continue;
    size_t below = std::prev(at)->second;
    if (layout.offsets[below] + requests[below].bytes > layout.offsets[i])
      return overlap(below, i, requests[i].first);
  }
  return base::ok_status();
}

}  // namespace dc::layout
