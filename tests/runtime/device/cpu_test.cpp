#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/device/memory_map.h"

namespace dc::runtime {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(CpuDevice, SaysWhatItIs) {
  EXPECT_EQ(device::cpu_device().kind(), base::DeviceKind::Cpu);
  EXPECT_EQ(device::cpu_device().name(), "cpu");
}

TEST(CpuDevice, AllocatesZerosOnPages) {
  for (const bool host : {false, true}) {
    auto memory =
        host ? device::cpu_device().allocate_host(10000) : device::cpu_device().allocate(10000);
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ((*memory)->bytes(), 10000);
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*memory)->base()) % 4096, 0u);
    std::vector<std::byte> seen(10000, std::byte{1});
    EXPECT_TRUE(device::cpu_device().download(seen, (*memory)->base()).ok());
    EXPECT_EQ(seen, std::vector<std::byte>(10000));
  }
}

TEST(CpuDevice, MappingsOfTheSameSharedMemoryShowTheSameBytes) {
  auto shared = device::make_shared_memory(8192);
  ASSERT_TRUE(shared.ok());
  auto one = device::cpu_device().map_shared(shared->get(), 8192);
  auto two = device::cpu_device().map_shared(shared->get(), 8192);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_NE((*one)->base(), (*two)->base());
  EXPECT_TRUE(device::cpu_device().upload((*one)->base() + 5000, bytes_of({1, 2, 3})).ok());
  std::vector<std::byte> seen(4);
  EXPECT_TRUE(device::cpu_device().download(seen, (*two)->base() + 5000).ok());
  EXPECT_EQ(seen, bytes_of({1, 2, 3, 0}));
}

// Of 8 MiB at least 6 are whole large pages, wherever the mapping begins.
TEST(CpuDevice, LargePagesOfSharedMemoryBecomePrivate) {
  constexpr int64_t kMiB = int64_t{1} << 20, kWhole = 16 * kMiB;
  auto shared = device::make_shared_memory(kWhole);
  ASSERT_TRUE(shared.ok());
  auto one = device::cpu_device().map_shared(shared->get(), kWhole);
  auto two = device::cpu_device().map_shared(shared->get(), kWhole);
  ASSERT_TRUE(one.ok() && two.ok());
  ASSERT_TRUE((*one)->make_private(4 * kMiB, 8 * kMiB).ok());
  ASSERT_TRUE((*one)->make_private(13 * kMiB, kMiB / 2).ok());
  std::memset((*two)->base(), 2, kWhole);
  const auto seen = [&](int64_t at) { return static_cast<int>((*one)->base()[at]); };
  EXPECT_EQ(seen(4 * kMiB - 1), 2);
  EXPECT_EQ(seen(6 * kMiB), 0);
  EXPECT_EQ(seen(10 * kMiB - 1), 0);
  EXPECT_EQ(seen(12 * kMiB), 2);
  EXPECT_EQ(seen(13 * kMiB + kMiB / 4), 2) << "less than a large page";
  EXPECT_EQ(std::count((*one)->base(), (*one)->base() + kWhole, std::byte{0}) % (2 * kMiB), 0);
  std::memset((*one)->base(), 1, kWhole);
  EXPECT_EQ(static_cast<int>((*two)->base()[8 * kMiB]), 2);
  EXPECT_EQ(static_cast<int>((*two)->base()[kMiB]), 1);
}

TEST(CpuDevice, RefusesMemoryThatNoMachineHas) {
  const auto memory = device::cpu_device().allocate(int64_t{1} << 62);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().code(), "DC6106");
  EXPECT_EQ(memory.status().kind(), base::ErrorKind::OutOfMemory);
}

TEST(CpuStream, TimestampsAreAsFarApartAsTheWorkTakes) {
  auto memory = device::cpu_device().allocate(int64_t{4} << 20);
  ASSERT_TRUE(memory.ok());
  auto stream = device::cpu_device().make_stream();
  const auto first = device::cpu_device().make_timestamp(),
             second = device::cpu_device().make_timestamp();
  stream->write_timestamp(*first);
  stream->fill((*memory)->base(), std::byte{1}, (*memory)->bytes());
  stream->write_timestamp(*second);
  const int64_t time = second->since(*first).value();
  EXPECT_GT(time, 0);
  EXPECT_EQ(first->since(*second).value(), -time);
  EXPECT_FALSE(device::cpu_device().gpu().has_value());
}

TEST(CpuStream, CopiesAndFillsInOrder) {
  auto memory = device::cpu_device().allocate(4096);
  ASSERT_TRUE(memory.ok());
  std::byte* at = (*memory)->base();
  auto stream = device::cpu_device().make_stream();
  stream->fill(at, std::byte{7}, 4);
  stream->fill(at + 2, std::byte{9}, 2);
  stream->copy(at + 1, at, 4);  // they overlap
  std::vector<std::byte> seen(6);
  EXPECT_TRUE(device::cpu_device().download(seen, at).ok());
  EXPECT_EQ(seen, bytes_of({7, 7, 7, 9, 9, 0}));
  EXPECT_EQ(stream->resolve(at), at);
}

TEST(CpuEvent, WaitingForThePastReturnsAtOnce) {
  auto event = device::cpu_device().make_event();
  auto stream = device::cpu_device().make_stream();
  stream->signal(*event, 5);
  EXPECT_TRUE(event->wait(3));
  stream->signal(*event, 4);  // a late, lower value changes nothing
  EXPECT_TRUE(stream->wait(*event, 5));
}

TEST(CpuEvent, CancelWakesWaitersNowAndLater) {
  auto event = device::cpu_device().make_event();
  auto stream = device::cpu_device().make_stream();
  std::atomic<bool> woken{false};
  std::thread waiter([&] {
    EXPECT_FALSE(device::cpu_device().make_stream()->wait(*event, 1));
    woken = true;
  });
  event->cancel();
  waiter.join();
  EXPECT_TRUE(woken);
  stream->signal(*event, 7);
  EXPECT_FALSE(event->wait(7));
}

TEST(AddressWindow, MovesWhatIsInsideAndNothingElse) {
  std::array<std::byte, 64> memory;
  const device::AddressWindow window(memory.data() + 8, 16, 32);
  EXPECT_EQ(window.resolve(memory.data() + 8), memory.data() + 40);
  EXPECT_EQ(window.resolve(memory.data() + 23), memory.data() + 55);
  EXPECT_EQ(window.resolve(memory.data() + 7), memory.data() + 7);
  EXPECT_EQ(window.resolve(memory.data() + 24), memory.data() + 24);
  EXPECT_EQ(window.resolve(static_cast<std::byte*>(nullptr)), nullptr);
}

}  // namespace
}  // namespace dc::runtime
