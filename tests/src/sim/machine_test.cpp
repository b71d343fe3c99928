#include "src/sim/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "tests/src/sim/random_schedule.h"

namespace dc::sim {
namespace {

using base::Nanos;

Event kernel(int64_t ns) { return {EventKind::Compute, -1, -1, {ns}}; }
Event start(int32_t transfer) { return {EventKind::Start, transfer, -1, {}}; }
Event done(int32_t transfer) { return {EventKind::Done, transfer, -1, {}}; }
Transfer on_stream(int stream, int64_t latency, int64_t wire, cost::Contention contention = {}) {
  return {stream, Link::Ranks, {latency}, {wire}, contention};
}

struct Played {
  explicit Played(const Schedule& schedule)
      : machine(schedule, &record), totals(machine.finish()) {}
  int64_t begin(size_t event) const { return record.begin[event].v; }
  int64_t end(size_t event) const { return record.end[event].v; }
  Record record;
  Machine machine;
  Totals totals;
};

TEST(Machine, TwoStreamsShareOneLink) {
  const Schedule schedule{3,
                          {start(0), start(1), kernel(50), done(0), done(1)},
                          {on_stream(1, 0, 100), on_stream(2, 0, 60)}};
  const Played played(schedule);
  EXPECT_EQ(played.end(1), 120);  // half of the rate throughout
  EXPECT_EQ(played.end(0), 160);  // 60 of 100 at 120, the rest alone
  EXPECT_EQ(played.totals.time.v, 160);
  EXPECT_EQ(played.totals.exposed.v, 110);
  EXPECT_EQ(played.machine.exposed(0).v, 110);
  EXPECT_EQ(played.machine.exposed(1).v, 0);
}

// A gather next to a reduction: while both are on the wire each takes 1.25 and 1.5 times what half
// of the rate makes of it.
TEST(Machine, WhatSharesALinkSlowsEachOtherAsMeasured) {
  const Schedule schedule{
      3,
      {start(0), start(1), done(1), done(0)},
      {on_stream(1, 0, 200, {1000, 1000, 1250}), on_stream(2, 0, 60, {1000, 1000, 1500})}};
  const Played played(schedule);
  EXPECT_EQ(played.end(1), 180);        // 60 * 2 * 1.5
  EXPECT_EQ(played.end(0), 180 + 128);  // 180 / 2.5 = 72 of 200 by then, the rest alone
  EXPECT_EQ(played.totals.time.v, 308);
}

TEST(Machine, OtherLinksAndLatenciesAreNotShared) {
  Schedule schedule{
      3, {start(0), start(1), done(0), done(1)}, {on_stream(1, 40, 100), on_stream(2, 0, 40)}};
  EXPECT_EQ(Played(schedule).totals.time.v, 140);
  schedule.transfers[0].latency = {};
  EXPECT_EQ(Played(schedule).totals.time.v, 140);  // 80 for the second, then 60 alone
  schedule.transfers[1].link = Link::ToHost;
  EXPECT_EQ(Played(schedule).totals.time.v, 100);
}

TEST(Machine, OneStreamServesInTheOrderOfStarts) {
  const Schedule schedule{2,
                          {start(0), start(1), kernel(10), done(1), done(0)},
                          {on_stream(1, 5, 20), on_stream(1, 5, 20)}};
  const Played played(schedule);
  EXPECT_EQ(played.begin(1), 25);
  EXPECT_EQ(played.totals.time.v, 50);
  EXPECT_EQ(played.machine.exposed(1).v, 40);
  EXPECT_EQ(played.machine.exposed(0).v, 0);
}

TEST(Machine, WhatRunsBesideEachOtherSlowsEachOther) {
  const Schedule schedule{
      2, {start(0), kernel(100), done(0)}, {on_stream(1, 0, 200, {2000, 1250})}};
  const Played played(schedule);
  EXPECT_EQ(played.end(1), 125);  // all of it during the transfer
  EXPECT_EQ(played.totals.contention.v, 25);
  EXPECT_EQ(played.end(0), 125 + 138);  // 62 of 200 concurrent with compute, in whole nanoseconds
  EXPECT_EQ(played.totals.time.v, 263);
}

TEST(Machine, ATransferOnStreamZeroStandsInTheWay) {
  const Schedule schedule{2, {kernel(10), start(0), kernel(5), done(0)}, {on_stream(0, 3, 20)}};
  const Played played(schedule);
  EXPECT_EQ(played.totals.time.v, 38);
  EXPECT_EQ(played.totals.exposed.v, 23);
  EXPECT_EQ(played.begin(2), 33);
}

TEST(Machine, ATransferWaitsForThoseOfOtherStreams) {
  Schedule schedule{3,
                    {start(0), start(1), kernel(10), done(1), start(2), done(0)},
                    {on_stream(1, 30, 0), on_stream(2, 0, 20), on_stream(2, 5, 0)}};
  schedule.transfers[0].link = schedule.transfers[2].link = Link::None;  // kernels
  EXPECT_EQ(Played(schedule).totals.time.v, 30);
  schedule.transfers[1].after = {0};
  const Played played(schedule);
  EXPECT_EQ(played.begin(1), 30);
  EXPECT_EQ(played.begin(4), 50);
  EXPECT_EQ(played.totals.time.v, 55);
  EXPECT_EQ(played.totals.exposed.v, 40);
}

TEST(Machine, EndsWithItsLastStream) {
  const Schedule schedule{2, {start(0), kernel(10)}, {on_stream(1, 0, 30)}};
  EXPECT_EQ(Played(schedule).totals.time.v, 30);
  EXPECT_EQ(Played(Schedule{}).totals.time.v, 0);
}

// The same rules, one nanosecond after the other and nothing remembered between them.
class SlowMachine {
 public:
  explicit SlowMachine(const Schedule& schedule)
      : schedule_(schedule), streams_(static_cast<size_t>(schedule.streams)) {
    ended_.resize(schedule.transfers.size());
  }

  Totals run() {
    for (int64_t now = 0;; ++now) {
      settle(now);
      if (next_ == schedule_.events.size() && !kernel_ && idle())
        return {{now}, exposed_, contention_};
      tick();
    }
  }

 private:
  struct Stream {
    std::deque<int32_t> queue;
    int64_t latency = 0, wire = 0;  // left, of the first one
  };
  static constexpr int64_t kWork = 5040;

  const Transfer& first(const Stream& stream) const {
    return schedule_.transfers[static_cast<size_t>(stream.queue.front())];
  }
  // Its first transfer waits for none of another stream.
  bool runs(const Stream& stream) const {
    if (stream.queue.empty()) return false;
    const std::vector<int32_t>& after = first(stream).after;
    return std::all_of(after.begin(), after.end(),
                       [&](int32_t other) { return ended_[static_cast<size_t>(other)]; });
  }
  bool idle() const {
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const Stream& s) { return s.queue.empty(); });
  }
  void load(Stream& stream) {
    if (stream.queue.empty()) return;
    stream.latency = first(stream).latency.v * kWork;
    stream.wire = first(stream).wire.v * kWork;
  }
  // Everything that ends or begins at this moment.
  void settle(int64_t now) {
    for (bool moved = true; moved;) {
      moved = false;
      for (Stream& stream : streams_) {
        if (!runs(stream) || stream.latency > 0 || stream.wire > 0) continue;
        ended_[static_cast<size_t>(stream.queue.front())] = true;
        stream.queue.pop_front();
        load(stream);
        moved = true;
      }
      if (kernel_ && left_ <= 0) {
        contention_ += Nanos{now} - begin_ - schedule_.events[next_ - 1].time;
        kernel_ = false;
        moved = true;
      }
      moved = (!kernel_ && proceed(now)) || moved;
    }
  }
  bool proceed(int64_t now) {
    if (waits_for_ >= 0) {
      if (!ended_[static_cast<size_t>(waits_for_)]) return false;
      exposed_ += Nanos{now} - begin_;
      waits_for_ = -1;
    }
    if (next_ == schedule_.events.size()) return false;
    const Event& event = schedule_.events[next_++];
    begin_ = {now};
    if (event.kind == EventKind::Compute) {
      kernel_ = true;
      left_ = event.time.v * kWork;
      return true;
    }
    const auto id = static_cast<size_t>(event.transfer);
    const int stream = schedule_.transfers[id].stream;
    if (event.kind == EventKind::Start) {
      Stream& target = streams_[static_cast<size_t>(stream)];
      target.queue.push_back(event.transfer);
      if (target.queue.size() == 1) load(target);
    }
    if (event.kind == EventKind::Done || stream == 0) waits_for_ = event.transfer;
    return true;
  }
  void tick() {
    int64_t users[kLinks] = {};
    int64_t worst = 1000;
    for (const Stream& stream : streams_) {
      if (!runs(stream) || stream.latency > 0) continue;
      ++users[static_cast<size_t>(first(stream).link)];
      worst = std::max<int64_t>(worst, first(stream).contention.compute);
    }
    for (Stream& stream : streams_) {
      if (!runs(stream)) continue;
      if (stream.latency > 0) {
        stream.latency -= kWork;
        continue;
      }
      const int64_t slow_down = kernel_ ? first(stream).contention.collective : 1000;
      const int64_t sharing = users[static_cast<size_t>(first(stream).link)];
      int64_t times = slow_down * sharing;
      if (sharing > 1) times = times * first(stream).contention.shared / 1000;
      stream.wire -= kWork * 1000 / times;
    }
    if (kernel_) left_ -= kWork * 1000 / worst;
  }

  const Schedule& schedule_;
  std::vector<Stream> streams_;
  std::vector<bool> ended_;
  size_t next_ = 0;
  bool kernel_ = false;
  int64_t left_ = 0;
  int32_t waits_for_ = -1;
  Nanos begin_, exposed_, contention_;
};

TEST(Machine, AgreesWithItsRulesPlayedNanosecondByNanosecond) {
  Dice dice(7);
  for (int round = 0; round < 900; ++round) {
    RandomSchedule wanted;
    wanted.streams = 1 + round % 4;
    wanted.contends = round % 3 == 0;
    wanted.has_latency = round % 5 != 0;
    wanted.uses_links = round % 7 == 0;
    wanted.on_compute = round % 2 == 0;
    wanted.waits = round % 4 == 3;
    const Schedule schedule = make_schedule(wanted, dice);
    const Totals totals = Machine(schedule).finish();
    const Totals expected = SlowMachine(schedule).run();
    ASSERT_EQ(totals.time.v, expected.time.v) << round;
    ASSERT_EQ(totals.exposed.v, expected.exposed.v) << round;
    ASSERT_EQ(totals.contention.v, expected.contention.v) << round;
  }
}

}  // namespace
}  // namespace dc::sim
