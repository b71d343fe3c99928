// Replay: one schedule whose events change a little, again and again (delta evaluation). The
// machine goes on from a checkpoint before the first changed event, and stops where its state is
// that of the run before at the same event: what follows then takes the same time, until the next
// changed event, before which it goes on again.
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

  // Whether what follows takes the time that it took after `before`.
  bool goes_on_as(const Machine::Snapshot& before, const Machine::Snapshot& here) const;

  // From one checkpoint on until the run is as before.
  struct Part {
    size_t first = 0, until = 0;       // checkpoints that are others; the next one is as before
    size_t passed = 0;                 // the first of them in passed_
    Totals later_before, later_after;  // what the run has gained on the one before it
  };

  Schedule schedule_;
  Machine machine_;
  std::vector<Machine::Snapshot> checkpoints_;  // before every kEvery-th event
  Totals totals_;
  std::vector<int32_t> changed_;  // events
  std::vector<int32_t> others_;   // transfers that are others now
  std::vector<bool> is_other_;    // the same, by transfer
  // Of the last evaluation.
  std::vector<Part> parts_;
  std::vector<Machine::Snapshot> passed_;  // the first passed_count_; the others are memory
  size_t passed_count_ = 0;
  Totals evaluated_;
};

}  // namespace dc::sim
