// Candidates: what could leave the device, when, and by which copies; and the choice among them
// under the budget. Shared by the offload passes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "src/passes/pass.h"
#include "src/schedule/memory_pressure.h"

namespace dc::passes {

// Positions from `first` to `last` of one program, both included.
struct Interval {
  int program = 0;
  int32_t first = 0, last = -1;
};

// A copy from or to the device. It goes out when compute reaches `position` or comes in before
// compute reaches it. Its other half, the done of one that goes out and the start of one that comes
// in, lies between `position` and `bound`; place_copies() says where.
struct PlannedCopy {
  bool out = false;
  int program = 0;
  int32_t position = 0, bound = 0;
  int64_t bytes = 0;  // aligned
  base::Nanos time;
  size_t item = 0;      // copies of one thing have one number
  ir::ValueId value{};  // for the caller
  int32_t other_half = 0;
};

struct DeviceInterval {
  Interval when;
  int64_t bytes = 0;
};

// One thing that could leave the device.
struct OffloadCandidate {
  int64_t bytes = 0;  // that the device need not hold, aligned
  bool is_state =
      false;  // held throughout, but for the offloaded intervals if it leaves; else a transient
  std::vector<Interval> offloaded_intervals;
  std::vector<DeviceInterval>
      device_intervals;  // of state, as transients between the offloaded intervals
  std::vector<PlannedCopy> copies;
  std::vector<Interval>
      target_intervals;  // when it takes room in the target space; empty: throughout
  bool selected = false;
};

// Bytes on the device if it leaves (`sign` 1), or comes back (-1).
void account(schedule::MemoryPressure& pressure, const OffloadCandidate& candidate, int sign);

// First in, first out: a stream of copies along the time that compute alone would take. Reloads
// use the same queue on the reversed time axis.
class CopyQueue {
 public:
  // When a copy that is ready at `ready` would end, behind those that are ready earlier.
  base::Nanos end_of(base::Nanos ready, base::Nanos time) const;
  void add(base::Nanos ready, base::Nanos time);

 private:
  struct Entry {
    base::Nanos ready, time, end;
  };
  std::vector<Entry> entries_;  // by ready
};

// Options::offload_space, the host if it is not set.
ir::Space target_space(const Options& options);

// Chooses candidates until every position fits the budget or nothing helps: at the position
// furthest above it, the one that saves most bytes times time away per time that compute waits for
// its copies. Then takes back what turned out not to be needed. `chose` is called after each
// choice, and may change the copies of candidates not chosen yet.
class OffloadChoice {
 public:
  OffloadChoice(const ir::Step& step, const PassContext& context,
                schedule::MemoryPressure& pressure, std::vector<OffloadCandidate>& candidates);
  template <typename Chose>
  void run(const Chose& chose) {
    while (const OffloadCandidate* next = choose_next())
      chose(static_cast<size_t>(next - candidates_.data()));
    take_back();
  }

 private:
  OffloadCandidate* choose_next();
  OffloadCandidate* best_at(schedule::MemoryPressure::Spot spot);
  void no_longer_helps(const OffloadCandidate& candidate);
  static bool helps(const OffloadCandidate& candidate, schedule::MemoryPressure::Spot spot);
  // `waiting`: what compute waits for a copy.
  template <typename Waiting>
  double worth(size_t index, const Waiting& waiting) const;
  double time_away(const OffloadCandidate& candidate) const;
  base::Nanos waiting_for(const PlannedCopy& copy) const;
  base::Nanos least_waiting_for(const PlannedCopy& copy) const;
  int32_t needed_at(const PlannedCopy& copy) const;
  int repeat(int program) const { return step_.programs[static_cast<size_t>(program)].repeat; }
  bool has_room_in_target(const OffloadCandidate& candidate) const;
  void choose(const OffloadCandidate& candidate, int sign);
  void take_back();

  const ir::Step& step_;
  schedule::MemoryPressure& pressure_;
  std::vector<OffloadCandidate>& candidates_;
  std::vector<double> away_;                   // by candidate: time without its bytes, in ns
  std::vector<size_t> order_;                  // of choices
  std::vector<bool> without_room_;             // by candidate: the target space is too full for it
  std::vector<CopyQueue> offloads_, reloads_;  // by program
  int64_t target_room_;                        // for state, and for all the rest at once
  std::vector<std::vector<int64_t>> outside_;  // by program and position: of the rest
  int64_t all_outside_ = 0;                    // of the rest, whether at once or not
  // By program and position: candidates not chosen yet that would be away there.
  std::vector<std::vector<int32_t>> helping_;
};

// Where the copies of one program that come in start: sets their other halves, between `bound` and
// `position`, and adds their bytes. They are in the order given to place_copies().
using ReloadPolicy = std::function<void(schedule::MemoryPressure&, std::vector<PlannedCopy*>&)>;
// As late as hides them behind compute, no earlier than there is room, in the order of the stream.
void start_when_it_hides(schedule::MemoryPressure& pressure, std::vector<PlannedCopy*>& coming);

// Finds the other half of every copy. One that goes out has the time that hides it behind compute,
// or until there is no more room for its bytes on the device; those that come in are as `rule`
// says.
void place_copies(schedule::MemoryPressure& pressure, const std::vector<PlannedCopy*>& copies,
                  const ReloadPolicy& rule = start_when_it_hides);

}  // namespace dc::passes
