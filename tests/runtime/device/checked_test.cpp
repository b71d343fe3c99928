#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/device/memory_map.h"

namespace dc::runtime {
namespace {

device::Device& checked() { return *device::open_device(base::DeviceKind::Checked).value(); }

TEST(CheckedDevice, IsOneForTheProcess) {
  EXPECT_EQ(checked().kind(), base::DeviceKind::Checked);
  EXPECT_EQ(checked().name(), "checked");
  EXPECT_EQ(&checked(), &checked());
  EXPECT_EQ(device::open_device(base::DeviceKind::Cpu).value(), &device::cpu_device());
}

TEST(CheckedDevice, MovesBytesThroughUploadStreamsAndDownload) {
  auto memory = checked().allocate(10000);
  auto host = checked().allocate_host(10000);
  ASSERT_TRUE(memory.ok() && host.ok());
  std::byte* at = (*memory)->base();
  std::vector<std::byte> seen(10000, std::byte{1});
  EXPECT_TRUE(checked().download(seen, at).ok());
  EXPECT_EQ(seen, std::vector<std::byte>(10000));  // zeros at first
  const std::vector<std::byte> three(3, std::byte{3});
  EXPECT_TRUE(checked().upload(at + 5000, three).ok());
  auto stream = checked().make_stream();
  stream->fill(at + 5001, std::byte{7}, 1);
  stream->copy((*host)->base(), at + 4999, 5);  // to the host
  EXPECT_EQ((*host)->base()[0], std::byte{0});
  EXPECT_EQ((*host)->base()[1], std::byte{3});
  EXPECT_EQ((*host)->base()[2], std::byte{7});
  stream->copy(at, (*host)->base(), 5);  // and back
  EXPECT_TRUE(checked().download(std::span(seen).first(3), at).ok());
  EXPECT_EQ(seen[2], std::byte{7});
  EXPECT_EQ(stream->resolve(at)[2], std::byte{7});  // as a kernel does
  EXPECT_NE(stream->resolve(at), at);
  EXPECT_EQ(stream->resolve((*host)->base()), (*host)->base());
}

TEST(CheckedDevice, SharedMemoryShowsTheSameBytesAtEveryMapping) {
  auto shared = device::make_shared_memory(8192);
  ASSERT_TRUE(shared.ok());
  auto one = checked().map_shared(shared->get(), 8192);
  auto two = checked().map_shared(shared->get(), 8192);
  ASSERT_TRUE(one.ok() && two.ok());
  checked().make_stream()->fill((*one)->base() + 100, std::byte{9}, 1);
  std::byte seen{0};
  EXPECT_TRUE(checked().download({&seen, 1}, (*two)->base() + 100).ok());
  EXPECT_EQ(seen, std::byte{9});
}

// The point of the device.
TEST(CheckedDeviceDeathTest, TheHostCannotTouchItsMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto memory = checked().allocate(4096);
  ASSERT_TRUE(memory.ok());
  volatile std::byte* at = (*memory)->base();
  EXPECT_DEATH({ [[maybe_unused]] const std::byte value = *at; }, "");
  EXPECT_DEATH({ *at = std::byte{1}; }, "");
  EXPECT_DEATH(
      {
        const std::vector<std::byte> from(16);
        std::memcpy((*memory)->base(), from.data(), from.size());
      },
      "");
}

TEST(CheckedDeviceDeathTest, KernelsCannotLeaveWhatWasAllocated) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto memory = checked().allocate(4096);
  ASSERT_TRUE(memory.ok());
  const auto stream = checked().make_stream();
  EXPECT_DEATH(stream->fill((*memory)->base() + 4096, std::byte{1}, 1), "");
  EXPECT_DEATH(stream->fill((*memory)->base() - 1, std::byte{1}, 1), "");
}

TEST(CheckedDeviceDeathTest, WhatWasGivenBackIsGone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto memory = checked().allocate(4096);
  ASSERT_TRUE(memory.ok());
  std::byte* at = (*memory)->base();
  memory->reset();
  auto next = checked().allocate(4096);
  ASSERT_TRUE(next.ok());
  EXPECT_NE((*next)->base(), at);
  EXPECT_DEATH(checked().make_stream()->fill(at, std::byte{1}, 1), "");
}

TEST(DeviceKinds, ReadAsTheyAreWritten) {
  using base::DeviceKind;
  for (const DeviceKind kind : {DeviceKind::Cpu, DeviceKind::Checked}) {
    EXPECT_EQ(base::device_kind(base::name(kind)), kind);
    EXPECT_TRUE(base::runs_plans_for(kind, kind));
  }
  EXPECT_FALSE(base::device_kind("tpu"));
  EXPECT_TRUE(base::runs_plans_for(DeviceKind::Checked, DeviceKind::Cpu));
  EXPECT_FALSE(base::runs_plans_for(DeviceKind::Cpu, DeviceKind::Checked));
}

}  // namespace
}  // namespace dc::runtime
