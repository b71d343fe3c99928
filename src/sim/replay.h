// Replay: one schedule whose events change a little, again and again (delta evaluation). The
// machine goes on from a checkpoint before the first changed event, and stops where its state is
// that of the run before at the same event: what follows then takes the same time.
//
// Events keep their places. One that is taken out is a kernel that takes no time.
#pragma once

#include <vector>

#include "src/sim/machine.h"

namespace dc::sim {

class Replay {
 public:
  // Plays the schedule, which must have neither arrivals nor transfers that leave the step running.
  explicit Replay(Schedule schedule);
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  const Schedule& schedule() const { return schedule_; }

  void set_event(int32_t index, const Event& event);
  // Of the transfer that the event starts.
  void set_transfer(int32_t start, const Transfer& transfer);

  // Of the changed schedule, as Machine::finish().
  Totals evaluate();
  // The changed schedule becomes the one that later changes are compared with; after evaluate().
  void accept();
  // All events since then are as they were: their caller has set them back.
  void forget_changes();

 private:
  static constexpr int32_t kEvery = 32;  // events from one checkpoint to the next

  void change(int32_t index);

  Schedule schedule_;
  Machine machine_;
  std::vector<Machine::Snapshot> checkpoints_;  // before every kEvery-th event
  Totals totals_;
  int32_t first_ = INT32_MAX, last_ = -1;  // changed events
  // Of the last evaluation: the checkpoints from number `from_` on, until the run was as before at
  // `until_`, and what it took.
  std::vector<Machine::Snapshot> passed_;
  size_t from_ = 0, until_ = 0;
  Totals evaluated_;
};

}  // namespace dc::sim
