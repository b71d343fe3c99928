// Random changes of random schedules: the replay takes what a new machine takes.
#include "src/sim/replay.h"

#include <gtest/gtest.h>

#include "tests/src/sim/random_schedule.h"

namespace dc::sim {
namespace {

Totals played(const Schedule& schedule) { return Machine(schedule).finish(); }

// Changes times of kernels, and takes transfers out with all that waits for them, or puts them
// back.
class Changer {
 public:
  Changer(const Schedule& schedule, Replay& replay, Dice& dice)
      : original_(schedule), replay_(replay), dice_(dice) {}

  void change(int32_t index) {
    const Event& event = original_.events[static_cast<size_t>(index)];
    if (event.kind == EventKind::Compute) {
      Event other = event;
      other.time = {dice_.below(60)};
      replay_.set_event(index, other);
      return;
    }
    const Event& now = replay_.schedule().events[static_cast<size_t>(index)];
    if (now.kind == EventKind::Start && dice_.chance(50)) {
      Transfer other = replay_.schedule().transfers[static_cast<size_t>(now.transfer)];
      other.wire = {dice_.below(80)};
      replay_.set_transfer(index, other);
      return;
    }
    const bool out = now.kind != EventKind::Compute;
    for (size_t i = 0; i < original_.events.size(); ++i) {
      const Event& one = original_.events[i];
      if (one.kind == EventKind::Compute || one.transfer != event.transfer) continue;
      replay_.set_event(static_cast<int32_t>(i),
                        out ? Event{EventKind::Compute, -1, one.origin, {}} : one);
      if (out || one.kind != EventKind::Start) continue;
      Transfer transfer = original_.transfers[static_cast<size_t>(one.transfer)];
      transfer.wire = {dice_.below(80)};
      replay_.set_transfer(static_cast<int32_t>(i), transfer);
    }
  }

 private:
  const Schedule& original_;
  Replay& replay_;
  Dice& dice_;
};

void compare(const RandomSchedule& like, uint32_t seed) {
  Dice dice(seed);
  const Schedule schedule = make_schedule(like, dice);
  Replay replay(schedule);
  ASSERT_EQ(replay.evaluate(), played(schedule));
  Changer changer(schedule, replay, dice);
  for (int i = 0; i < 20; ++i) {
    const auto count = static_cast<int32_t>(schedule.events.size());
    const auto near = dice.below(count);
    const bool is_far = dice.chance(30);
    for (int changes = 1 + dice.below(3); changes > 0; --changes) {
      const int32_t at = is_far ? dice.below(count) : near + dice.below(20);
      changer.change(std::min<int32_t>(at, static_cast<int32_t>(schedule.events.size()) - 1));
    }
    ASSERT_EQ(replay.evaluate(), played(replay.schedule())) << "seed " << seed << ", change " << i;
    if (dice.chance(70)) replay.accept();
  }
}

TEST(Replay, IsAMachineThatPlaysAll) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    RandomSchedule like;
    like.kernels = 40 + static_cast<int32_t>(seed % 300);
    like.transfers = like.kernels / 3;
    like.streams = 2 + static_cast<int>(seed % 3);
    like.contends = seed % 2 == 0;
    like.uses_links = seed % 5 == 0;
    like.on_compute = seed % 7 == 0;
    compare(like, seed);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace dc::sim
