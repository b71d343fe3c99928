#include "runtime/exec/issuing_thread.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
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

struct Append : exec::Work {
  Append(std::vector<int>& list, int value) : list(list), value(value) {}
  void run() override { list.push_back(value); }
  std::vector<int>& list;
  int value;
};

TEST(IssuingThread, RunsInOrderAndFinishesBeforeItEnds) {
  std::vector<int> seen;
  std::vector<std::unique_ptr<Append>> work;
  work.reserve(100);
  for (int i = 0; i < 100; ++i) work.push_back(std::make_unique<Append>(seen, i));
  {
    exec::IssuingThread thread("a name longer than a thread's may be");
    for (auto& item : work) thread.submit(*item);
  }
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[i], i);
}

TEST(IssuingThread, TakesTheCoreAsSoonAsItWakes) {
  struct Ask : exec::Work {
    void run() override { slice = slice_of_this_thread(); }
    std::optional<uint64_t> slice;
  };
  const std::optional<uint64_t> usual = slice_of_this_thread();
  if (!usual || *usual == 0) GTEST_SKIP() << "this kernel has no slices of a thread's own";
  Ask ask;
  exec::IssuingThread("ask").submit(ask);
  EXPECT_EQ(ask.slice, 100'000u);
  EXPECT_EQ(slice_of_this_thread(), usual);  // who submits keeps its own
}

struct WaitThenSignal : exec::Work {
  WaitThenSignal(device::Event& first, device::Event& then)
      : first(first), then(then), stream(device::cpu_device().make_stream()) {}
  void run() override {
    ++epoch;
    result = stream->wait(first, epoch);
    stream->signal(then, epoch);
  }
  device::Event &first, &then;
  std::unique_ptr<device::Stream> stream;
  uint32_t epoch = 0;
  std::atomic<bool> result{false};
};

TEST(IssuingThread, TwoOfThemAreOrderedByEventsManyTimesWithoutReset) {
  auto ping = device::cpu_device().make_event(), pong = device::cpu_device().make_event();
  auto stream = device::cpu_device().make_stream();
  WaitThenSignal work(*ping, *pong);
  exec::IssuingThread thread("answer");
  for (uint32_t i = 1; i <= 2000; ++i) {
    thread.submit(work);
    stream->signal(*ping, i);
    ASSERT_TRUE(stream->wait(*pong, i));
    ASSERT_TRUE(work.result);
  }
}

}  // namespace
}  // namespace dc::runtime
