// Random schedules, equal on every host: std's generators are specified to the bit, its
// distributions are not.
#pragma once

#include <random>
#include <vector>

#include "src/sim/schedule.h"

namespace dc::sim {

class Dice {
 public:
  explicit Dice(uint32_t seed) : generator_(seed) {}
  int32_t below(int32_t n) { return static_cast<int32_t>(generator_() % static_cast<uint32_t>(n)); }
  bool chance(int32_t percent) { return below(100) < percent; }

 private:
  std::mt19937 generator_;
};

struct RandomSchedule {
  int streams = 2;  // compute included
  int32_t kernels = 20, transfers = 8, longest = 40;
  bool contends = false, has_latency = true, uses_links = false, on_compute = false;
  bool waits = false;  // transfers for one another; some are kernels
};

// Some transfers wait for some of those that were started before them.
inline void add_waits(Schedule& schedule, Dice& dice) {
  std::vector<int32_t> started;
  for (const Event& event : schedule.events) {
    if (event.kind != EventKind::Start) continue;
    Transfer& transfer = schedule.transfers[static_cast<size_t>(event.transfer)];
    if (dice.chance(30)) {
      transfer.link = Link::None;
      transfer.latency += transfer.wire;
      transfer.wire = {};
      transfer.contention = {};
    }
    for (const int32_t before : started) {
      if (dice.chance(20)) transfer.after.push_back(before);
    }
    started.push_back(event.transfer);
  }
}

// Kernels in order; every transfer starts somewhere and is done somewhere after, in any order.
inline Schedule make_schedule(const RandomSchedule& wanted, Dice& dice) {
  Schedule schedule;
  schedule.streams = wanted.streams;
  for (int32_t i = 0; i < wanted.kernels; ++i)
    schedule.events.push_back({EventKind::Compute, -1, i, {dice.below(wanted.longest)}});
  for (int32_t i = 0; i < wanted.transfers; ++i) {
    Transfer transfer;
    transfer.stream = wanted.streams == 1 || (wanted.on_compute && dice.chance(20))
                          ? 0
                          : 1 + dice.below(wanted.streams - 1);
    if (wanted.has_latency) transfer.latency = {dice.below(10)};
    transfer.wire = {dice.below(wanted.longest)};
    // None is a kernel's.
    if (wanted.uses_links) transfer.link = static_cast<Link>(dice.below(kLinks - 1));
    if (wanted.contends)
      transfer.contention = {1000 + 100 * dice.below(8), 1000 + 50 * dice.below(8),
                             dice.chance(50) ? 1000 : 1000 + 125 * dice.below(8)};
    schedule.transfers.push_back(transfer);
    const auto size = static_cast<int32_t>(schedule.events.size());
    const int32_t start = dice.below(size + 1);
    const int32_t done = start + 1 + dice.below(size + 1 - start);
    const auto place = [&](EventKind kind, int32_t at) {
      schedule.events.insert(schedule.events.begin() + at, {kind, i, wanted.kernels + i, {}});
    };
    place(EventKind::Start, start);
    place(EventKind::Done, done);
  }
  if (wanted.waits) add_waits(schedule, dice);
  return schedule;
}

}  // namespace dc::sim
