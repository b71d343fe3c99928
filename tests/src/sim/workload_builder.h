// Workloads by hand and by chance: kernels, gathers before them, reductions behind them.
#pragma once

#include <algorithm>
#include <vector>

#include "src/sim/workload.h"
#include "tests/src/sim/random_schedule.h"

namespace dc::sim {

struct WorkloadBuilder {
  explicit WorkloadBuilder(int streams = 2) { work.schedule.streams = streams; }

  int32_t storage(int64_t bytes, bool from_start = false) {
    work.storages.push_back({{bytes}, from_start});
    return static_cast<int32_t>(work.storages.size()) - 1;
  }
  int32_t kernel(int64_t ns, std::vector<int32_t> reads, std::vector<int32_t> writes,
                 EventTraits traits = {{}, true, false}) {
    return add({EventKind::Compute, -1, -1, {ns}}, traits, reads, writes);
  }
  // A start without its done.
  int32_t start(Transfer transfer, std::vector<int32_t> reads, std::vector<int32_t> writes) {
    work.schedule.transfers.push_back(transfer);
    const auto index = static_cast<int32_t>(work.schedule.transfers.size()) - 1;
    return add({EventKind::Start, index, -1, {}}, {}, reads, writes);
  }

  int32_t add(Event event, EventTraits traits, const std::vector<int32_t>& reads,
              const std::vector<int32_t>& writes) {
    const auto index = static_cast<int32_t>(work.schedule.events.size());
    event.origin = index;
    work.schedule.events.push_back(event);
    work.traits.push_back(traits);
    for (int32_t s : reads) work.accesses.push_back({index, s, 0, 0, 8, false});
    for (int32_t s : writes) work.accesses.push_back({index, s, 0, 0, 8, true});
    return index;
  }

  Workload work;
};

inline constexpr EventTraits kUpdate{{}, false, false}, kBarrier{{}, false, true};

// The schedule that does the events of a workload in a given order, with each done right before the
// first event that depends on its transfer, or at the end.
inline Schedule ordered(const Workload& work, const Precedence& before,
                        const std::vector<int32_t>& order) {
  Schedule schedule = work.schedule;
  schedule.events.clear();
  std::vector<bool> is_done(work.schedule.transfers.size(), true);
  const auto finish = [&](int32_t transfer) {
    if (is_done[static_cast<size_t>(transfer)]) return;
    is_done[static_cast<size_t>(transfer)] = true;
    schedule.events.push_back({EventKind::Done, transfer, -1, {}});
  };
  for (int32_t e : order) {
    const Event& event = work.schedule.events[static_cast<size_t>(e)];
    for (int32_t i = before.first[static_cast<size_t>(e)];
         i < before.first[static_cast<size_t>(e) + 1]; ++i) {
      const Event& earlier =
          work.schedule.events[static_cast<size_t>(before.before[static_cast<size_t>(i)])];
      if (earlier.kind == EventKind::Start) finish(earlier.transfer);
    }
    if (event.kind == EventKind::Start) is_done[static_cast<size_t>(event.transfer)] = false;
    schedule.events.push_back(event);
  }
  for (size_t t = 0; t < is_done.size(); ++t) finish(static_cast<int32_t>(t));
  return schedule;
}

// Forward, backward, reductions and an update, with parameters gathered for some layers.
inline Workload random_training(Dice& dice, int streams, bool contends, bool has_norm) {
  WorkloadBuilder b(streams);
  const auto transfer = [&](int64_t longest) {
    Transfer t{1 + dice.below(streams - 1),
               Link::Ranks,
               {dice.below(6)},
               {dice.below(static_cast<int32_t>(longest))},
               {}};
    if (contends) t.contention = {1000 + 100 * dice.below(10), 1000 + 100 * dice.below(10)};
    return t;
  };
  const int layers = 2 + dice.below(4);
  std::vector<int32_t> saved, row;
  int32_t activation = b.storage(8 + dice.below(40), true);
  for (int i = 0; i < layers; ++i) {
    std::vector<int32_t> reads = {activation};
    if (dice.chance(70)) {
      reads.push_back(b.storage(8 + dice.below(100)));
      b.start(transfer(60), {}, {reads.back()});
    }
    saved.push_back(activation);
    activation = b.storage(8 + dice.below(40));
    b.kernel(dice.below(50), reads, {activation}, {{dice.below(30)}, true, false});
  }
  std::vector<int32_t> reduced;
  for (int i = layers; i-- > 0;) {
    std::vector<int32_t> reads = {activation, saved[static_cast<size_t>(i)]};
    if (dice.chance(70)) {
      reads.push_back(b.storage(8 + dice.below(100)));
      b.start(transfer(60), {}, {reads.back()});
    }
    activation = b.storage(8 + dice.below(40));
    b.kernel(dice.below(50), reads, {activation});
    const int32_t gradient = b.storage(8 + dice.below(100));
    b.kernel(dice.below(50), {reads[0], saved[static_cast<size_t>(i)]}, {gradient});
    reduced.push_back(b.storage(8));
    b.start(transfer(90), {gradient}, {reduced.back()});
    row.push_back(b.storage(0));
    if (has_norm) b.kernel(dice.below(5), {reduced.back()}, {row.back()}, kUpdate);
  }
  const int32_t scalars = b.storage(0);
  if (has_norm) b.kernel(1, row, {scalars}, kBarrier);
  for (int32_t gradient : reduced)
    b.kernel(dice.below(30), {gradient, scalars}, {b.storage(0)}, kUpdate);
  return b.work;
}

}  // namespace dc::sim
