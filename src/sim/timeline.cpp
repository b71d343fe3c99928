#include "src/sim/timeline.h"

#include <algorithm>

#include "src/base/status.h"

namespace dc::sim {
Timeline::Timeline(Schedule schedule, int32_t interval)
    : interval_(interval), schedule_(std::make_unique<Schedule>(std::move(schedule))) {
  DC_CHECK(interval_ > 0);
  machine_ = std::make_unique<Machine>(*schedule_);
  kept_ = {machine_->checkpoint()};
  play_to_end();
}

void Timeline::keep_next() {
  machine_->run_to(kept_.back().next + interval_);
  kept_.push_back(machine_->checkpoint());
  played_ += interval_;
}

void Timeline::play_to_end() {
  const auto count = static_cast<int32_t>(schedule_->events.size());
  while (count - kept_.back().next >= 2 * interval_) keep_next();
  totals_ = machine_->finish();
  played_ += count - kept_.back().next;
}

const Totals& Timeline::replace(int32_t first, int32_t last, std::span<const Event> events) {
  std::vector<Event>& all = schedule_->events;
  const auto shift = static_cast<int32_t>(events.size()) - (last - first);
  const auto kept =
      static_cast<int32_t>(std::min<size_t>(events.size(), static_cast<size_t>(last - first)));
  std::copy_n(events.begin(), kept, all.begin() + first);
  if (shift < 0) all.erase(all.begin() + first + kept, all.begin() + last);
  if (shift > 0) all.insert(all.begin() + last, events.begin() + kept, events.end());
  play(first, last, shift);
  return totals_;
}

const Totals& Timeline::move(int32_t from, int32_t to) {
  const auto begin = schedule_->events.begin();
  if (from < to) std::rotate(begin + from, begin + from + 1, begin + to + 1);
  if (to < from) std::rotate(begin + to, begin + from, begin + from + 1);
  play(std::min(from, to), std::max(from, to) + 1, 0);
  return totals_;
}

int32_t Timeline::add(const Transfer& transfer) {
  schedule_->transfers.push_back(transfer);
  machine_->grow();
  return static_cast<int32_t>(schedule_->transfers.size()) - 1;
}

// Events [first, last) have changed, and those behind them moved by `shift`.
void Timeline::play(int32_t first, int32_t last, int32_t shift) {
  const auto after_first = std::find_if(kept_.begin() + 1, kept_.end(),
                                        [&](const Checkpoint& at) { return at.next > first; });
  const auto behind =
      std::find_if(after_first, kept_.end(), [&](const Checkpoint& at) { return at.next >= last; });
  std::vector<Checkpoint> tail(std::make_move_iterator(behind),
                               std::make_move_iterator(kept_.end()));
  for (Checkpoint& at : tail) at.next += shift;
  kept_.erase(after_first, kept_.end());
  machine_->restore(kept_.back());
  for (size_t next = 0; next < tail.size(); ++next) {
    // States of their own for what was put in between.
    while (tail[next].next - kept_.back().next >= 2 * interval_) keep_next();
    machine_->run_to(tail[next].next);
    played_ += tail[next].next - kept_.back().next;
    Checkpoint now = machine_->checkpoint();
    const bool meets = now.streams == tail[next].streams;
    const Totals later = now.totals - tail[next].totals;
    kept_.push_back(std::move(now));
    if (!meets) continue;
    for (size_t rest = next + 1; rest < tail.size(); ++rest) {
      tail[rest].totals += later;
      kept_.push_back(std::move(tail[rest]));
    }
    totals_ += later;
    machine_->leave();
    return;
  }
  play_to_end();
}

}  // namespace dc::sim
