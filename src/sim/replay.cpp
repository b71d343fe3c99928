#include "src/sim/replay.h"

#include <algorithm>
#include <utility>

#include "src/base/status.h"

namespace dc::sim {

Replay::Replay(Schedule schedule)
    : schedule_(std::move(schedule)), machine_(schedule_), is_other_(schedule_.transfers.size()) {
  DC_CHECK(schedule_.arrivals.empty() && schedule_.leaving.empty());
  const auto count = static_cast<int32_t>(schedule_.events.size());
  for (int32_t i = 0; i <= count; i += kEvery) {
    (void)machine_.run_to(i);
    machine_.take_snapshot(checkpoints_.emplace_back());
  }
  totals_ = machine_.finish();
}

void Replay::set_event(int32_t index, const Event& event) {
  schedule_.events[static_cast<size_t>(index)] = event;
  changed_.push_back(index);
}

void Replay::set_transfer(int32_t start, const Transfer& transfer) {
  const int32_t started = schedule_.events[static_cast<size_t>(start)].transfer;
  schedule_.transfers[static_cast<size_t>(started)] = transfer;
  others_.push_back(started);
  is_other_[static_cast<size_t>(started)] = true;
  changed_.push_back(start);
}

// A transfer that is another one now takes another time from here, although it is the same to both.
bool Replay::goes_on_as(const Machine::Snapshot& before, const Machine::Snapshot& here) const {
  const auto is_other = [&](int32_t transfer) { return is_other_[static_cast<size_t>(transfer)]; };
  return here.same_rest(before) &&
         std::none_of(here.streams.begin(), here.streams.end(), [&](const auto& stream) {
           return (stream.transfer >= 0 && is_other(stream.transfer)) ||
                  std::any_of(stream.pending.begin(), stream.pending.end(), is_other);
         });
}

Totals Replay::evaluate() {
  parts_.clear();
  passed_count_ = 0;
  std::sort(changed_.begin(), changed_.end());
  Totals later;
  for (auto next = changed_.begin(); next != changed_.end();) {
    Part part;
    part.first = static_cast<size_t>(*next / kEvery) + 1;
    part.passed = passed_count_;
    part.later_before = later;
    machine_.restore(checkpoints_[part.first - 1]);
    for (part.until = part.first; part.until < checkpoints_.size(); ++part.until) {
      const Machine::Snapshot& before = checkpoints_[part.until];
      (void)machine_.run_to(before.next);
      while (next != changed_.end() && *next < before.next) ++next;
      if (passed_count_ == passed_.size()) passed_.emplace_back();
      Machine::Snapshot& here = passed_[passed_count_];
      machine_.take_snapshot(here);
      if (goes_on_as(before, here)) {
        later += here.totals - before.totals;
        break;
      }
      ++passed_count_;
    }
    part.later_after = later;
    parts_.push_back(part);
    if (part.until == checkpoints_.size()) {
      evaluated_ = later;
      return evaluated_ += machine_.finish();
    }
  }
  evaluated_ = totals_;
  return evaluated_ += later;
}

void Replay::accept() {
  for (size_t p = 0; p < parts_.size(); ++p) {
    const Part& part = parts_[p];
    for (size_t i = part.first; i < part.until; ++i) {
      std::swap(checkpoints_[i], passed_[part.passed + (i - part.first)]);
      checkpoints_[i].totals += part.later_before;
    }
    const size_t end = p + 1 < parts_.size() ? parts_[p + 1].first : checkpoints_.size();
    for (size_t i = part.until; i < end; ++i) checkpoints_[i].totals += part.later_after;
  }
  totals_ = evaluated_;
  forget_changes();
}

void Replay::forget_changes() {
  parts_.clear();
  passed_count_ = 0;
  changed_.clear();
  for (const int32_t transfer : others_) is_other_[static_cast<size_t>(transfer)] = false;
  others_.clear();
}

}  // namespace dc::sim
