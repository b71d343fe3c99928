// Timeline: a schedule that changes, simulated again from the change on. For searches that try many
// schedules which differ in little.
//
// The machine's state is kept every so many events. A change plays from the last state before it,
// and only until the machine meets a kept state again: the same transfers under way with the same
// work left. From there on everything happens as before, only earlier or later. The figures are
// those of a whole simulation, to the nanosecond.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/sim/machine.h"

namespace dc::sim {

class Timeline {
 public:
  // `interval`: events between two kept states.
  explicit Timeline(Schedule schedule, int32_t interval = 64);

  const Schedule& schedule() const { return *schedule_; }
  const Totals& totals() const { return totals_; }
  // How long compute stood because of a transfer.
  base::Nanos exposed(int32_t transfer) const { return machine_->exposed(transfer); }

  // Puts `events` into the place of events [first, last). In the whole a transfer must still be
  // started once, before it is done. To take it back, replace again.
  const Totals& replace(int32_t first, int32_t last, std::span<const Event> events);
  // Event `from` goes to index `to`, those between move by one.
  const Totals& move(int32_t from, int32_t to);
  // A transfer that events may start from now on. Returns its index.
  int32_t add(const Transfer& transfer);

  int64_t events_played() const { return played_; }  // in all, for those who measure

 private:
  void play(int32_t first, int32_t last, int32_t shift);
  void keep_next();
  void play_to_end();

  int32_t interval_;
  std::unique_ptr<Schedule> schedule_;  // its address stays when the timeline is moved
  std::unique_ptr<Machine> machine_;
  std::vector<Checkpoint> kept_;  // by `next`, from 0
  Totals totals_;
  int64_t played_ = 0;
};

}  // namespace dc::sim
