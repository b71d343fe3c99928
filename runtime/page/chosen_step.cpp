#include "runtime/page/chosen_step.h"

#include <algorithm>
#include <limits>
#include <map>

namespace dc::runtime::page {
namespace {

struct Extent {
  int64_t events = 0;
  int64_t begin_ns = std::numeric_limits<int64_t>::max(), end_ns = 0;
};
using Steps = std::map<int32_t, Extent>;  // by step

}  // namespace

base::Result<ChosenStep> choose_step(const exec::TraceFile& trace) {
  std::map<int32_t, Steps> ranks;
  int64_t most = 0;  // every rank runs the same programs, so every whole step has as many events
  for (const exec::TraceEvent& event : trace.events) {
    Extent& extent = ranks[event.rank][event.step];
    most = std::max(most, ++extent.events);
    extent.begin_ns = std::min(extent.begin_ns, event.begin_ns);
    extent.end_ns = std::max(extent.end_ns, event.end_ns);
  }
  std::vector<std::pair<int64_t, int32_t>> whole;  // duration, step
  if (!ranks.empty()) {
    for (const auto& first : ranks.begin()->second) {
      const bool is_whole = std::all_of(ranks.begin(), ranks.end(), [&](const auto& rank) {
        const auto found = rank.second.find(first.first);
        return found != rank.second.end() && found->second.events == most;
      });
      if (is_whole) whole.emplace_back(first.second.end_ns - first.second.begin_ns, first.first);
    }
  }
  if (whole.empty()) {
    return base::Status(base::ErrorKind::BadInput, "DC6631",
                        "the trace holds no step from begin to end on every rank; record it anew "
                        "with dcrun --trace and --steps 3");
  }
  std::sort(whole.begin(), whole.end());
  ChosenStep chosen;
  chosen.step = whole[(whole.size() - 1) / 2].second;
  chosen.whole_steps = static_cast<int32_t>(whole.size());
  for (const auto& [rank, steps] : ranks) chosen.ranks.push_back(rank);
  for (exec::TraceEvent event : trace.events) {
    if (event.step != chosen.step) continue;
    const int64_t begin = ranks[event.rank][event.step].begin_ns;
    event.begin_ns -= begin;
    event.end_ns -= begin;
    chosen.events.push_back(event);
  }
  return chosen;
}

}  // namespace dc::runtime::page
