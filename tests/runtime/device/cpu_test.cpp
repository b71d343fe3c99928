#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/device/device.h"

namespace dc::runtime {
namespace {

struct Append : Work {
  Append(std::vector<int>& list, int value) : list(list), value(value) {}
  void run() override { list.push_back(value); }
  std::vector<int>& list;
  int value;
};

TEST(CpuStream, RunsInOrderAndFinishesBeforeItEnds) {
  auto device = make_cpu_device();
  EXPECT_EQ(device->name(), "cpu");
  std::vector<int> seen;
  std::vector<std::unique_ptr<Append>> work;
  for (int i = 0; i < 100; ++i) work.push_back(std::make_unique<Append>(seen, i));
  {
    auto stream = device->make_stream("a name longer than a thread's may be");
    for (auto& item : work) stream->submit(*item);
  }
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[i], i);
}

struct WaitThenSignal : Work {
  WaitThenSignal(Event& first, Event& then) : first(first), then(then) {}
  void run() override {
    ++epoch;
    result = first.wait(epoch);
    then.signal(epoch);
  }
  Event &first, &then;
  uint32_t epoch = 0;
  std::atomic<bool> result{false};
};

TEST(CpuEvent, OrdersTwoStreamsManyTimesWithoutReset) {
  auto device = make_cpu_device();
  auto ping = device->make_event(), pong = device->make_event();
  WaitThenSignal work(*ping, *pong);
  auto stream = device->make_stream("answer");
  for (uint32_t i = 1; i <= 2000; ++i) {
    stream->submit(work);
    ping->signal(i);
    ASSERT_TRUE(pong->wait(i));
    ASSERT_TRUE(work.result);
  }
}

TEST(CpuEvent, WaitingForThePastReturnsAtOnce) {
  auto event = make_cpu_device()->make_event();
  event->signal(5);
  EXPECT_TRUE(event->wait(3));
  event->signal(4);  // a late, lower value changes nothing
  EXPECT_TRUE(event->wait(5));
}

TEST(CpuEvent, CancelWakesWaitersNowAndLater) {
  auto device = make_cpu_device();
  auto event = device->make_event();
  std::atomic<bool> woken{false};
  std::thread waiter([&] {
    EXPECT_FALSE(event->wait(1));
    woken = true;
  });
  event->cancel();
  waiter.join();
  EXPECT_TRUE(woken);
  event->signal(7);
  EXPECT_FALSE(event->wait(7));
}

}  // namespace
}  // namespace dc::runtime
