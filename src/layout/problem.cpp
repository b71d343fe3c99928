#include "src/layout/problem.h"

#include <algorithm>
#include <numeric>

#include "src/base/units.h"

namespace dc::layout {

Problem::Problem(std::span<const Request> requests) {
  std::vector<int32_t> starts;
  starts.reserve(requests.size());
  for (const Request& request : requests) starts.push_back(request.first);
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  std::vector<int32_t> ends(starts.size());  // whether something ends before the next start
  for (const Request& request : requests) {
    auto index = [&](auto it) { return static_cast<int32_t>(it - starts.begin()); };
    first.push_back(index(std::lower_bound(starts.begin(), starts.end(), request.first)));
    last.push_back(index(std::upper_bound(starts.begin(), starts.end(), request.last)) - 1);
    bytes.push_back(base::round_up(request.bytes, base::kAlignment));
    ends[static_cast<size_t>(last.back())] = 1;
  }
  // Now how many do up to there.
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  for (size_t i = 0; i < size(); ++i) {
    const auto from = static_cast<size_t>(first[i]);
    begin.push_back(from == 0 ? 0 : ends[from - 1]);
    end.push_back(ends[static_cast<size_t>(last[i])] - 1);
  }
  if (!ends.empty()) moments = ends.back();
}

int64_t Problem::peak() const {
  std::vector<int64_t> change(static_cast<size_t>(moments) + 1, 0);
  for (size_t i = 0; i < size(); ++i) {
    change[static_cast<size_t>(begin[i])] += bytes[i];
    change[static_cast<size_t>(end[i]) + 1] -= bytes[i];
  }
  int64_t live = 0, most = 0;
  for (const int64_t delta : change) most = std::max(most, live += delta);
  return most;
}

}  // namespace dc::layout
