#include "src/sim/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/src/sim/random_schedule.h"

namespace dc::sim {
namespace {

// Index of the event that starts or ends a transfer.
int32_t find(const Schedule& schedule, EventKind kind, int32_t transfer) {
  for (size_t i = 0; i < schedule.events.size(); ++i) {
    const Event& event = schedule.events[i];
    if (event.kind == kind && event.transfer == transfer) return static_cast<int32_t>(i);
  }
  return -1;
}

// Moves a random event to a place where its transfer is still started before it is done.
void move_one(Timeline& timeline, Dice& dice) {
  const Schedule& schedule = timeline.schedule();
  const auto count = static_cast<int32_t>(schedule.events.size());
  const int32_t from = dice.below(count);
  const Event event = schedule.events[static_cast<size_t>(from)];
  int32_t low = 0, high = count;
  if (event.kind == EventKind::Start) high = find(schedule, EventKind::Done, event.transfer);
  if (event.kind == EventKind::Done) low = find(schedule, EventKind::Start, event.transfer) + 1;
  timeline.move(from, low + dice.below(high - low));
}

// Other times for some kernels, kernels more or fewer, a transfer of another size.
void replace_some(Timeline& timeline, Dice& dice, bool contends) {
  const Schedule& schedule = timeline.schedule();
  const auto count = static_cast<int32_t>(schedule.events.size());
  const int32_t first = dice.below(count + 1), last = first + dice.below(count + 1 - first);
  std::vector<Event> events(schedule.events.begin() + first, schedule.events.begin() + last);
  if (dice.chance(50))
    std::erase_if(events,
                  [&](const Event& e) { return e.kind == EventKind::Compute && dice.chance(30); });
  for (Event& event : events) {
    if (event.kind == EventKind::Compute && dice.chance(30)) event.time = {dice.below(40)};
  }
  for (int more = dice.below(4); more > 0; --more)
    events.insert(events.begin() + dice.below(static_cast<int32_t>(events.size()) + 1),
                  {EventKind::Compute, -1, -1, {dice.below(40)}});
  for (size_t i = 0; i < events.size(); ++i) {
    const int32_t old = events[i].transfer;
    if (events[i].kind != EventKind::Start || find(schedule, EventKind::Done, old) >= last ||
        !dice.chance(20))
      continue;
    Transfer other = schedule.transfers[static_cast<size_t>(old)];
    other.wire = {dice.below(60)};
    if (contends) other.contention.compute = 1000 + dice.below(500);
    const int32_t added = timeline.add(other);
    for (Event& event : events) event.transfer = event.transfer == old ? added : event.transfer;
  }
  timeline.replace(first, last, events);
}

TEST(Timeline, EqualsTheWholeSimulationAfterEveryChange) {
  Dice dice(5);
  for (int round = 0; round < 150; ++round) {
    RandomSchedule wanted;
    wanted.streams = 2 + round % 3;
    wanted.kernels = 60;
    wanted.transfers = 15;
    wanted.contends = round % 3 == 0;
    wanted.on_compute = round % 4 == 0;
    Timeline timeline(make_schedule(wanted, dice), 1 + dice.below(12));
    for (int change = 0; change < 40; ++change) {
      if (dice.chance(70)) {
        move_one(timeline, dice);
      } else {
        replace_some(timeline, dice, wanted.contends);
      }
      Machine whole(timeline.schedule());
      const Totals totals = whole.finish();
      ASSERT_EQ(timeline.totals().time.v, totals.time.v) << round << " " << change;
      ASSERT_EQ(timeline.totals().exposed.v, totals.exposed.v) << round << " " << change;
      ASSERT_EQ(timeline.totals().contention.v, totals.contention.v) << round << " " << change;
      for (const Event& event : timeline.schedule().events) {
        if (event.kind != EventKind::Start) continue;
        ASSERT_EQ(timeline.exposed(event.transfer).v, whole.exposed(event.transfer).v)
            << round << " " << change << " " << event.transfer;
      }
    }
  }
}

// 1000 kernels of 10 ns; every tenth waits for a transfer of 50 ns that started right before it.
Schedule just_in_time() {
  Schedule schedule;
  schedule.streams = 2;
  for (int32_t i = 0; i < 1000; ++i) {
    if (i % 10 == 0) {
      const int32_t transfer = i / 10;
      schedule.transfers.push_back({1, Link::Ranks, {}, {50}, {}});
      schedule.events.push_back({EventKind::Start, transfer, -1, {}});
      schedule.events.push_back({EventKind::Done, transfer, -1, {}});
    }
    schedule.events.push_back({EventKind::Compute, -1, i, {10}});
  }
  return schedule;
}

TEST(Timeline, PlaysOnlyUntilAllGoesAsBefore) {
  Timeline timeline(just_in_time(), 16);
  EXPECT_EQ(timeline.totals().time.v, 100 * 50 + 1000 * 10);
  const int64_t before = timeline.events_played();
  const int32_t start = find(timeline.schedule(), EventKind::Start, 50);
  EXPECT_EQ(timeline.move(start, start - 3).time.v, 100 * 50 + 1000 * 10 - 30);
  EXPECT_EQ(timeline.exposed(50).v, 20);
  EXPECT_EQ(timeline.exposed(90).v, 50);
  EXPECT_LE(timeline.events_played() - before, 64);
  EXPECT_EQ(timeline.move(start - 3, start).time.v, 100 * 50 + 1000 * 10);  // taken back
  EXPECT_EQ(timeline.exposed(50).v, 50);
}

}  // namespace
}  // namespace dc::sim
