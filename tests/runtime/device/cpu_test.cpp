#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/device/device.h"

namespace dc::runtime {
namespace {

// The kernel's sched_attr, whose header does not go together with <sched.h>.
struct Attributes {
  uint32_t size = 0, policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0, deadline = 0, period = 0;
};

// Nanoseconds, as the scheduler tells; nothing where it has none.
std::optional<uint64_t> slice_of_this_thread() {
  Attributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return std::nullopt;
  return attributes.runtime;
}

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

TEST(CpuStream, TakesTheCoreAsSoonAsItWakes) {
  struct Ask : Work {
    void run() override { slice = slice_of_this_thread(); }
    std::optional<uint64_t> slice;
  };
  const std::optional<uint64_t> usual = slice_of_this_thread();
  if (!usual || *usual == 0) GTEST_SKIP() << "this kernel has no slices of a thread's own";
  Ask ask;
  make_cpu_device()->make_stream("ask")->submit(ask);
  EXPECT_EQ(ask.slice, 100'000u);
  EXPECT_EQ(slice_of_this_thread(), usual);  // who submits keeps its own
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
