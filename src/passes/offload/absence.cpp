#include "src/passes/offload/absence.h"

#include <algorithm>

namespace dc::passes {
namespace {

using base::Nanos;

// To start a copy and to wait for it, whatever its size.
constexpr int64_t kOverheadNs = 4000;

Nanos turned(Nanos time) { return Nanos{-time.v}; }

int64_t outside_limit(const ir::Step& step, const Options& options) {
  const ir::Space space = space_outside(options);
  const std::optional<base::Bytes>& budget = options.budgets[space];
  if (!budget) return INT64_MAX / 2;
  return (*budget - analysis::state_bytes(step, space)).v / 33 * 32;
}

}  // namespace

ir::Space space_outside(const Options& options) {
  return options.offload_space.value_or(ir::Space::Host);
}

void account(schedule::MemoryPressure& pressure, const Absence& absence, int sign) {
  if (!absence.is_state) {
    for (const Interval& gap : absence.gaps)
      pressure.add(gap.program, gap.first, gap.last, -sign * absence.bytes);
    return;
  }
  pressure.add_to_state(-sign * absence.bytes);
  for (const Stay& stay : absence.stays)
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

AbsenceChoice::AbsenceChoice(const ir::Step& step, const PassContext& context,
                             schedule::MemoryPressure& pressure, std::vector<Absence>& absences)
    : step_(step),
      pressure_(pressure),
      absences_(absences),
      going_(step.programs.size()),
      coming_(step.programs.size()),
      outside_room_(outside_limit(step, context.options)) {
  for (size_t p = 0; p < step.programs.size(); ++p)
    outside_.emplace_back(static_cast<size_t>(pressure.positions(static_cast<int>(p))));
}

Absence* AbsenceChoice::choose_next() {
  while (const auto spot = pressure_.survey()) {
    Absence* best = nullptr;
    double most = 0;
    for (Absence& absence : absences_) {
      const bool helps =
          std::any_of(absence.gaps.begin(), absence.gaps.end(), [&](const Interval& gap) {
            return gap.program == spot->program && gap.first <= spot->position &&
                   spot->position <= gap.last;
          });
      if (absence.is_chosen || !helps || !has_room_outside(absence)) continue;
      const double worth_now = worth(absence);
      if (best != nullptr && worth_now <= most) continue;
      best = &absence;
      most = worth_now;
    }
    if (best == nullptr) {
      pressure_.give_up(*spot);
      continue;
    }
    best->is_chosen = true;
    order_.push_back(static_cast<size_t>(best - absences_.data()));
    choose(*best, 1);
    for (const PlannedCopy& copy : best->copies) {
      const auto p = static_cast<size_t>(copy.program);
      const Nanos at = pressure_.time(copy.program, copy.position);
      copy.out ? going_[p].add(at, copy.time) : coming_[p].add(turned(at), copy.time);
    }
    return best;
  }
  return nullptr;
}

double AbsenceChoice::worth(const Absence& absence) const {
  double away = 1, cost = 0;
  for (const Interval& gap : absence.gaps) {
    const Nanos time =
        pressure_.time(gap.program, gap.last + 1) - pressure_.time(gap.program, gap.first);
    const int repeat = step_.programs[static_cast<size_t>(gap.program)].repeat;
    away += static_cast<double>(time.v) * repeat;
  }
  for (const PlannedCopy& copy : absence.copies) {
    const int repeat = step_.programs[static_cast<size_t>(copy.program)].repeat;
    cost += static_cast<double>(waiting_for(copy).v + kOverheadNs) * repeat;
  }
  return static_cast<double>(absence.bytes) * away / std::max(cost, 1.0);
}

// What compute would wait if the bytes were gone by the first position that needs their room, and
// came back no sooner than after the last one.
Nanos AbsenceChoice::waiting_for(const PlannedCopy& copy) const {
  const auto p = static_cast<size_t>(copy.program);
  const Nanos at = pressure_.time(copy.program, copy.position);
  if (copy.out) {
    const int32_t gone = pressure_.first_over(copy.program, copy.position, copy.bound);
    return std::max(Nanos{}, going_[p].end_of(at, copy.time) - pressure_.time(copy.program, gone));
  }
  const int32_t back = pressure_.after_last_over(copy.program, copy.bound, copy.position);
  const Nanos begin = turned(coming_[p].end_of(turned(at), copy.time));
  return std::max(Nanos{}, pressure_.time(copy.program, back) - begin);
}

bool AbsenceChoice::has_room_outside(const Absence& absence) const {
  if (absence.outside.empty()) {
    int64_t most = 0;
    for (const std::vector<int64_t>& curve : outside_) {
      for (int64_t bytes : curve) most = std::max(most, bytes);
    }
    return most + absence.bytes <= outside_room_;
  }
  return std::all_of(absence.outside.begin(), absence.outside.end(), [&](const Interval& when) {
    const std::vector<int64_t>& curve = outside_[static_cast<size_t>(when.program)];
    return std::all_of(curve.begin() + when.first, curve.begin() + when.last + 1,
                       [&](int64_t bytes) { return bytes + absence.bytes <= outside_room_; });
  });
}

void AbsenceChoice::choose(const Absence& absence, int sign) {
  account(pressure_, absence, sign);
  if (absence.is_state) outside_room_ -= sign * absence.bytes;
  for (const Interval& when : absence.outside) {
    std::vector<int64_t>& curve = outside_[static_cast<size_t>(when.program)];
    for (int32_t i = when.first; i <= when.last; ++i)
      curve[static_cast<size_t>(i)] += sign * absence.bytes;
  }
}

// The last chosen first. What is above the budget anyway must not get worse.
void AbsenceChoice::take_back() {
  for (auto i = order_.rbegin(); i != order_.rend(); ++i) {
    Absence& absence = absences_[*i];
    if (absence.is_state && pressure_.has_given_up()) continue;
    const bool fits =
        absence.is_state ||
        std::all_of(absence.gaps.begin(), absence.gaps.end(), [&](const Interval& gap) {
          return pressure_.least_room(gap.program, gap.first, gap.last) >= absence.bytes;
        });
    if (!fits) continue;
    choose(absence, -1);
    absence.is_chosen = absence.is_state && pressure_.survey();
    if (absence.is_chosen) choose(absence, 1);
  }
}

namespace {

void place_going(schedule::MemoryPressure& pressure, std::vector<PlannedCopy*>& copies) {
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

// A copy that comes in starts after the one of the same item that went out before it has ended.
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
                  const ComingRule& rule) {
  for (int program = 0; program < pressure.programs(); ++program) {
    std::vector<PlannedCopy*> going, coming;
    for (PlannedCopy* copy : copies) {
      if (copy->program == program) (copy->out ? going : coming).push_back(copy);
    }
    place_going(pressure, going);
    follow(going, coming);
    rule(pressure, coming);
  }
}

}  // namespace dc::passes
