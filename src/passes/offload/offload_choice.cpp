#include "src/passes/offload/offload_choice.h"

#include <algorithm>
#include <numeric>

#include "src/schedule/time_axis.h"

namespace dc::passes {
namespace {

using base::Nanos;

// To start a copy and to wait for it, whatever its size.
constexpr int64_t kOverheadNs = 4000;

Nanos turned(Nanos time) { return Nanos{-time.v}; }

int64_t target_limit(const ir::Step& step, const Options& options) {
  const ir::Space space = target_space(options);
  const std::optional<base::Bytes>& budget = options.budgets[space];
  if (!budget) return INT64_MAX / 2;
  return schedule::live_limit((*budget - analysis::state_bytes(step, space)).v);
}

}  // namespace

ir::Space target_space(const Options& options) {
  return options.offload_space.value_or(ir::Space::Host);
}

void account(schedule::MemoryPressure& pressure, const OffloadCandidate& candidate, int sign) {
  if (!candidate.is_state) {
    for (const Interval& gap : candidate.offloaded_intervals)
      pressure.add(gap.program, gap.first, gap.last, -sign * candidate.bytes);
    return;
  }
  pressure.add_to_state(-sign * candidate.bytes);
  for (const DeviceInterval& stay : candidate.device_intervals)
    pressure.add(stay.when.program, stay.when.first, stay.when.last, sign * stay.bytes);
}

Nanos CopyQueue::end_of(Nanos ready, Nanos time) const {
  const auto after =
      std::upper_bound(entries_.begin(), entries_.end(), ready,
                       [](Nanos value, const Entry& entry) { return value < entry.ready; });
  const Nanos begin = after == entries_.begin() ? ready : std::max(ready, std::prev(after)->end);
  return begin + time;
}

void CopyQueue::add(Nanos ready, Nanos time) {
  auto at = std::upper_bound(entries_.begin(), entries_.end(), ready,
                             [](Nanos value, const Entry& entry) { return value < entry.ready; });
  at = entries_.insert(at, {ready, time, {}});
  for (; at != entries_.end(); ++at) {
    const Nanos begin =
        at == entries_.begin() ? at->ready : std::max(at->ready, std::prev(at)->end);
    at->end = begin + at->time;
  }
}

OffloadChoice::OffloadChoice(const ir::Step& step, const PassContext& context,
                             schedule::MemoryPressure& pressure,
                             std::vector<OffloadCandidate>& candidates)
    : step_(step),
      pressure_(pressure),
      candidates_(candidates),
      without_room_(candidates.size()),
      offloads_(step.programs.size()),
      reloads_(step.programs.size()),
      target_room_(target_limit(step, context.options)) {
  for (size_t p = 0; p < step.programs.size(); ++p) {
    outside_.emplace_back(static_cast<size_t>(pressure.positions(static_cast<int>(p))));
    helping_.emplace_back(outside_.back().size() + 1);
  }
  // Where each begins and ends to be away; their sums are how many are.
  for (const OffloadCandidate& candidate : candidates) {
    for (const Interval& gap : candidate.offloaded_intervals) {
      if (gap.first > gap.last) continue;
      std::vector<int32_t>& changes = helping_[static_cast<size_t>(gap.program)];
      ++changes[static_cast<size_t>(gap.first)];
      --changes[static_cast<size_t>(gap.last) + 1];
    }
    away_.push_back(time_away(candidate));
  }
  for (std::vector<int32_t>& counts : helping_)
    std::partial_sum(counts.begin(), counts.end(), counts.begin());
}

void OffloadChoice::no_longer_helps(const OffloadCandidate& candidate) {
  for (const Interval& gap : candidate.offloaded_intervals) {
    std::vector<int32_t>& counts = helping_[static_cast<size_t>(gap.program)];
    for (int32_t i = gap.first; i <= gap.last; ++i) --counts[static_cast<size_t>(i)];
  }
}

// The candidate that is worth most of those that help at the spot; null if there is none.
OffloadCandidate* OffloadChoice::best_at(schedule::MemoryPressure::Spot spot) {
  const auto p = static_cast<size_t>(spot.program);
  if (helping_[p][static_cast<size_t>(spot.position)] == 0) return nullptr;
  const auto waiting = [&](const PlannedCopy& copy) { return waiting_for(copy); };
  const auto least_waiting = [&](const PlannedCopy& copy) { return least_waiting_for(copy); };
  OffloadCandidate* best = nullptr;
  double most = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    OffloadCandidate& candidate = candidates_[i];
    if (candidate.selected || without_room_[i] || !helps(candidate, spot)) continue;
    // Most are worth too little even if they wait for no other copy.
    if (best != nullptr && worth(i, least_waiting) <= most) continue;
    const double worth_now = worth(i, waiting);
    if (best != nullptr && worth_now <= most) continue;
    if (!has_room_in_target(candidate)) {
      // Nor later: what is chosen takes more of it.
      without_room_[i] = true;
      no_longer_helps(candidate);
      continue;
    }
    best = &candidate;
    most = worth_now;
  }
  return best;
}

bool OffloadChoice::helps(const OffloadCandidate& candidate, schedule::MemoryPressure::Spot spot) {
  return std::any_of(candidate.offloaded_intervals.begin(), candidate.offloaded_intervals.end(),
                     [&](const Interval& gap) {
                       return gap.program == spot.program && gap.first <= spot.position &&
                              spot.position <= gap.last;
                     });
}

OffloadCandidate* OffloadChoice::choose_next() {
  for (auto spot = pressure_.survey(); spot; spot = pressure_.give_up(*spot)) {
    OffloadCandidate* best = best_at(*spot);
    if (best == nullptr) continue;
    best->selected = true;
    no_longer_helps(*best);
    order_.push_back(static_cast<size_t>(best - candidates_.data()));
    choose(*best, 1);
    for (const PlannedCopy& copy : best->copies) {
      const auto p = static_cast<size_t>(copy.program);
      const Nanos at = pressure_.time(copy.program, copy.position);
      copy.out ? offloads_[p].add(at, copy.time) : reloads_[p].add(turned(at), copy.time);
    }
    return best;
  }
  return nullptr;
}

double OffloadChoice::time_away(const OffloadCandidate& candidate) const {
  double away = 1;
  for (const Interval& gap : candidate.offloaded_intervals) {
    const Nanos time =
        pressure_.time(gap.program, gap.last + 1) - pressure_.time(gap.program, gap.first);
    away += static_cast<double>(time.v) * repeat(gap.program);
  }
  return away;
}

template <typename Waiting>
double OffloadChoice::worth(size_t index, const Waiting& waiting) const {
  const OffloadCandidate& candidate = candidates_[index];
  double cost = 0;
  for (const PlannedCopy& copy : candidate.copies)
    cost += static_cast<double>(waiting(copy).v + kOverheadNs) * repeat(copy.program);
  return static_cast<double>(candidate.bytes) * away_[index] / std::max(cost, 1.0);
}

// What compute would wait if the bytes were gone by the first position that needs their room, and
// came back no sooner than after the last one.
Nanos OffloadChoice::waiting_for(const PlannedCopy& copy) const {
  const auto p = static_cast<size_t>(copy.program);
  const Nanos at = pressure_.time(copy.program, copy.position);
  const Nanos limit = pressure_.time(copy.program, needed_at(copy));
  if (copy.out) return std::max(Nanos{}, offloads_[p].end_of(at, copy.time) - limit);
  const Nanos begin = turned(reloads_[p].end_of(turned(at), copy.time));
  return std::max(Nanos{}, limit - begin);
}

// The same with empty queues: no more than that.
Nanos OffloadChoice::least_waiting_for(const PlannedCopy& copy) const {
  const Nanos at = pressure_.time(copy.program, copy.position);
  const Nanos limit = pressure_.time(copy.program, needed_at(copy));
  return std::max(Nanos{}, (copy.out ? at - limit : limit - at) + copy.time);
}

int32_t OffloadChoice::needed_at(const PlannedCopy& copy) const {
  return copy.out ? pressure_.first_over(copy.program, copy.position, copy.bound)
                  : pressure_.after_last_over(copy.program, copy.bound, copy.position);
}

bool OffloadChoice::has_room_in_target(const OffloadCandidate& candidate) const {
  if (all_outside_ + candidate.bytes <= target_room_) return true;
  if (candidate.target_intervals.empty()) {
    int64_t most = 0;
    for (const std::vector<int64_t>& curve : outside_) {
      for (int64_t bytes : curve) most = std::max(most, bytes);
    }
    return most + candidate.bytes <= target_room_;
  }
  return std::all_of(
      candidate.target_intervals.begin(), candidate.target_intervals.end(),
      [&](const Interval& when) {
        const std::vector<int64_t>& curve = outside_[static_cast<size_t>(when.program)];
        return std::all_of(curve.begin() + when.first, curve.begin() + when.last + 1,
                           [&](int64_t bytes) { return bytes + candidate.bytes <= target_room_; });
      });
}

void OffloadChoice::choose(const OffloadCandidate& candidate, int sign) {
  account(pressure_, candidate, sign);
  if (candidate.is_state) target_room_ -= sign * candidate.bytes;
  for (const Interval& when : candidate.target_intervals) {
    std::vector<int64_t>& curve = outside_[static_cast<size_t>(when.program)];
    for (int32_t i = when.first; i <= when.last; ++i)
      curve[static_cast<size_t>(i)] += sign * candidate.bytes;
  }
  if (!candidate.target_intervals.empty()) all_outside_ += sign * candidate.bytes;
}

// The last chosen first. What is above the budget anyway must not get worse.
void OffloadChoice::take_back() {
  for (auto i = order_.rbegin(); i != order_.rend(); ++i) {
    OffloadCandidate& candidate = candidates_[*i];
    if (candidate.is_state && pressure_.has_given_up()) continue;
    const bool fits = candidate.is_state ||
                      std::all_of(candidate.offloaded_intervals.begin(),
                                  candidate.offloaded_intervals.end(), [&](const Interval& gap) {
                                    return pressure_.least_room(gap.program, gap.first, gap.last) >=
                                           candidate.bytes;
                                  });
    if (!fits) continue;
    choose(candidate, -1);
    candidate.selected = candidate.is_state && pressure_.survey();
    if (candidate.selected) choose(candidate, 1);
  }
}

namespace {

void place_offloads(schedule::MemoryPressure& pressure, std::vector<PlannedCopy*>& copies) {
  std::stable_sort(copies.begin(), copies.end(), [](const PlannedCopy* a, const PlannedCopy* b) {
    return a->position < b->position;
  });
  Nanos free{INT64_MIN / 2};
  for (PlannedCopy* copy : copies) {
    free = std::max(free, pressure.time(copy->program, copy->position)) + copy->time;
    int32_t done = copy->position;
    while (done < copy->bound && pressure.time(copy->program, done) < free &&
           pressure.room(copy->program, done) >= copy->bytes) {
      ++done;
    }
    copy->other_half = done;
    pressure.add(copy->program, copy->position, done - 1, copy->bytes);
  }
}

// A reload of an item must not start before the preceding offload of the same item is done.
void follow(const std::vector<PlannedCopy*>& going, const std::vector<PlannedCopy*>& coming) {
  for (PlannedCopy* copy : coming) {
    for (const PlannedCopy* gone : going) {
      if (gone->item == copy->item && gone->position <= copy->position)
        copy->bound = std::max(copy->bound, gone->other_half);
    }
  }
}

}  // namespace

// When each would begin if there were room: as late as keeps none waiting. Then where it does, what
// is needed first having the room first, and starting first.
void start_when_it_hides(schedule::MemoryPressure& pressure, std::vector<PlannedCopy*>& copies) {
  std::stable_sort(copies.begin(), copies.end(), [](const PlannedCopy* a, const PlannedCopy* b) {
    return a->position < b->position;
  });
  std::vector<Nanos> begin(copies.size());
  Nanos free{INT64_MAX / 2};
  for (size_t i = copies.size(); i-- > 0;) {
    const PlannedCopy& copy = *copies[i];
    free = std::min(free, pressure.time(copy.program, copy.position)) - copy.time;
    begin[i] = free;
  }
  int32_t earliest = 0;
  for (size_t i = 0; i < copies.size(); ++i) {
    PlannedCopy& copy = *copies[i];
    earliest = std::max(earliest, copy.bound);
    int32_t start = copy.position;
    while (start > earliest && pressure.time(copy.program, start) > begin[i] &&
           pressure.room(copy.program, start - 1) >= copy.bytes) {
      --start;
    }
    copy.other_half = start;
    earliest = start;
    pressure.add(copy.program, start, copy.position - 1, copy.bytes);
  }
}

void place_copies(schedule::MemoryPressure& pressure, const std::vector<PlannedCopy*>& copies,
                  const ReloadPolicy& rule) {
  for (int program = 0; program < pressure.programs(); ++program) {
    std::vector<PlannedCopy*> going, coming;
    for (PlannedCopy* copy : copies) {
      if (copy->program == program) (copy->out ? going : coming).push_back(copy);
    }
    place_offloads(pressure, going);
    follow(going, coming);
    rule(pressure, coming);
  }
}

}  // namespace dc::passes
