#include "src/sim/paths.h"

#include <algorithm>
#include <numeric>

namespace dc::sim {
namespace {

using base::Nanos;

// Sums over everything before or behind cost a walk through the graph, so only some of the events
// where chains meet get them: those with the most edges, and others evenly spread.
constexpr size_t kLargestJoins = 16, kSpreadJoins = 48;

// Edges of events in compressed rows: to[first[e]] ... to[first[e + 1] - 1].
struct Edges {
  std::vector<int32_t> first, to;
};

Edges reversed(const Precedence& precedence) {
  const size_t count = precedence.first.size() - 1;
  Edges edges{std::vector<int32_t>(count + 1), std::vector<int32_t>(precedence.before.size())};
  for (int32_t event : precedence.before) ++edges.first[static_cast<size_t>(event) + 1];
  std::partial_sum(edges.first.begin(), edges.first.end(), edges.first.begin());
  std::vector<int32_t> next(edges.first.begin(), edges.first.end() - 1);
  for (size_t e = 0; e < count; ++e) {
    for (int32_t i = precedence.first[e]; i < precedence.first[e + 1]; ++i) {
      const auto before = static_cast<size_t>(precedence.before[static_cast<size_t>(i)]);
      edges.to[static_cast<size_t>(next[before]++)] = static_cast<int32_t>(e);
    }
  }
  return edges;
}

class Walk {
 public:
  Walk(const std::vector<int32_t>& first, const std::vector<int32_t>& to, const Schedule& schedule)
      : first_(first), to_(to), schedule_(schedule), seen_(first.size() - 1, -1) {}

  // Marks events with several edges.
  std::vector<bool> joins() const {
    const size_t count = first_.size() - 1;
    std::vector<size_t> events;
    for (size_t e = 0; e < count; ++e) {
      if (edges(e) > 1) events.push_back(e);
    }
    std::vector<bool> is_join(count);
    const size_t step = events.size() / kSpreadJoins + 1;
    for (size_t i = 0; i < events.size(); i += step) is_join[events[i]] = true;
    std::stable_sort(events.begin(), events.end(),
                     [&](size_t a, size_t b) { return edges(a) > edges(b); });
    events.resize(std::min(events.size(), kLargestJoins));
    for (size_t event : events) is_join[event] = true;
    return is_join;
  }

  // The largest load of a stream or link by what can be reached from `event`, without its own.
  Nanos load_from(size_t event) {
    Loads loads;
    loads.streams.resize(static_cast<size_t>(std::max(schedule_.streams, 1)));
    stack_ = {static_cast<int32_t>(event)};
    while (!stack_.empty()) {
      const auto from = static_cast<size_t>(stack_.back());
      stack_.pop_back();
      for (int32_t i = first_[from]; i < first_[from + 1]; ++i) {
        const int32_t to = to_[static_cast<size_t>(i)];
        if (seen_[static_cast<size_t>(to)] == static_cast<int32_t>(event)) continue;
        seen_[static_cast<size_t>(to)] = static_cast<int32_t>(event);
        loads.add(schedule_, schedule_.events[static_cast<size_t>(to)]);
        stack_.push_back(to);
      }
    }
    return loads.largest();
  }

 private:
  int32_t edges(size_t event) const { return first_[event + 1] - first_[event]; }

  const std::vector<int32_t>&first_, &to_;
  const Schedule& schedule_;
  std::vector<int32_t> seen_;
  std::vector<int32_t> stack_;
};

Nanos time_of(const Schedule& schedule, const Event& event) {
  switch (event.kind) {
    case EventKind::Compute:
      return event.time;
    case EventKind::Start:
      return schedule.transfers[static_cast<size_t>(event.transfer)].time();
    case EventKind::Done:
      return {};
  }
  return {};
}

// Without what the barrier waits for.
Precedence without_barrier(const Workload& workload, const Precedence& precedence) {
  Precedence result;
  for (size_t e = 0; e + 1 < precedence.first.size(); ++e) {
    result.first.push_back(static_cast<int32_t>(result.before.size()));
    if (workload.traits[e].is_barrier) continue;
    result.before.insert(result.before.end(), precedence.before.begin() + precedence.first[e],
                         precedence.before.begin() + precedence.first[e + 1]);
  }
  result.first.push_back(static_cast<int32_t>(result.before.size()));
  return result;
}

}  // namespace

Paths paths(const Workload& workload, const Precedence& all, bool waits_for_norm) {
  if (!waits_for_norm) return paths(workload, without_barrier(workload, all));
  const Schedule& schedule = workload.schedule;
  const size_t count = schedule.events.size();
  Paths result{std::vector<Nanos>(count), std::vector<Nanos>(count)};
  Walk back(all.first, all.before, schedule);
  const std::vector<bool> is_meeting = back.joins();
  for (size_t e = 0; e < count; ++e) {
    Nanos& head = result.head[e];
    for (int32_t i = all.first[e]; i < all.first[e + 1]; ++i) {
      const auto before = static_cast<size_t>(all.before[static_cast<size_t>(i)]);
      head = std::max(head, result.head[before] + time_of(schedule, schedule.events[before]));
    }
    if (is_meeting[e]) head = std::max(head, back.load_from(e));
  }
  const Edges after = reversed(all);
  Walk on(after.first, after.to, schedule);
  const std::vector<bool> is_parting = on.joins();
  for (size_t e = count; e-- > 0;) {
    Nanos& tail = result.tail[e];
    for (int32_t i = after.first[e]; i < after.first[e + 1]; ++i) {
      const auto next = static_cast<size_t>(after.to[static_cast<size_t>(i)]);
      tail = std::max(tail, time_of(schedule, schedule.events[next]) + result.tail[next]);
    }
    if (is_parting[e]) tail = std::max(tail, on.load_from(e));
  }
  return result;
}

}  // namespace dc::sim
