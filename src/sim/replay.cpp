#include "src/sim/replay.h"

#include <algorithm>

#include "src/base/status.h"

namespace dc::sim {

Replay::Replay(Schedule schedule) : schedule_(std::move(schedule)), machine_(schedule_) {
  DC_CHECK(schedule_.arrivals.empty() && schedule_.leaving.empty());
  const auto count = static_cast<int32_t>(schedule_.events.size());
  for (int32_t i = 0; i <= count; i += kEvery) {
    (void)machine_.run_to(i);
    checkpoints_.push_back(machine_.snapshot());
  }
  totals_ = machine_.finish();
}

void Replay::change(int32_t index) {
  first_ = std::min(first_, index);
  last_ = std::max(last_, index);
}

void Replay::set_event(int32_t index, const Event& event) {
  schedule_.events[static_cast<size_t>(index)] = event;
  change(index);
}

void Replay::set_transfer(int32_t start, const Transfer& transfer) {
  const int32_t started = schedule_.events[static_cast<size_t>(start)].transfer;
  schedule_.transfers[static_cast<size_t>(started)] = transfer;
  change(start);
}

Totals Replay::evaluate() {
  passed_.clear();
  evaluated_ = totals_;
  if (last_ < 0) return evaluated_;
  from_ = static_cast<size_t>(first_ / kEvery);
  machine_.restore(checkpoints_[from_]);
  for (until_ = ++from_; until_ < checkpoints_.size(); ++until_) {
    const int32_t next = checkpoints_[until_].next;
    (void)machine_.run_to(next);
    Machine::Snapshot here = machine_.snapshot();
    if (next > last_ && here.same_rest(checkpoints_[until_])) {
      evaluated_ += here.totals - checkpoints_[until_].totals;
      return evaluated_;
    }
    passed_.push_back(std::move(here));
  }
  evaluated_ = machine_.finish();
  return evaluated_;
}

void Replay::accept() {
  const Totals later = evaluated_ - totals_;
  std::move(passed_.begin(), passed_.end(),
            checkpoints_.begin() + static_cast<std::ptrdiff_t>(from_));
  for (size_t i = until_; i < checkpoints_.size() && last_ >= 0; ++i)
    checkpoints_[i].totals += later;
  totals_ = evaluated_;
  forget_changes();
}

void Replay::forget_changes() {
  passed_.clear();
  first_ = INT32_MAX;
  last_ = -1;
}

}  // namespace dc::sim
