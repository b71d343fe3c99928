#include "runtime/memory/disk_space.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <numeric>
#include <span>

#include "runtime/memory/offload_memory.h"
#include "tests/runtime/exec/hand_plan.h"
#include "tests/runtime/memory/nameless_file.h"
#include "tests/runtime/train/scratch_folder.h"

namespace {
int interruptions = 0;  // of the next calls below
}

// In place of the C library's.
extern "C" int posix_fallocate(int descriptor, off_t offset, off_t bytes) {
  if (interruptions-- > 0) return EINTR;
  return fallocate(descriptor, 0, offset, bytes) == 0 ? 0 : errno;
}

namespace dc::runtime::test {
namespace {

using base::DType;
using base::ErrorKind;
using base::Status;
using plan::Space;

constexpr int64_t kElements = 200'000;  // several blocks

// State of two ranks on disk, one rank's range of it, and a transient.
struct DiskPlan : HandPlan {
  DiskPlan() : HandPlan(2) {
    whole = tensor("whole", DType::F32, {kElements}, -1, 0, 0, Space::Disk);
    own = own_range(whole, kElements / 2);
    transient = tensor("transient", DType::F32, {100}, 0, 0, 1, Space::Disk);
  }
  int32_t whole, own, transient;
};

struct Fixture : ::testing::Test {
  void SetUp() override {
    auto made = memory::DiskSpace::create(hand.plan, 1, folder / "");
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    disk = std::move(made).value();
  }
  Status write(int32_t tensor, const std::vector<float>& values) {
    return disk->write(disk->extent(tensor), reinterpret_cast<const std::byte*>(values.data()));
  }
  std::vector<float> read(int32_t tensor, int64_t count) {
    std::vector<float> values(static_cast<size_t>(count), -1);
    status = disk->read(disk->extent(tensor), reinterpret_cast<std::byte*>(values.data()));
    return values;
  }
  static std::vector<float> counting(int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    std::iota(values.begin(), values.end(), 1.0f);
    return values;
  }
  ScratchFolder folder;
  DiskPlan hand;
  std::unique_ptr<memory::DiskSpace> disk;
  Status status;
};

using DiskSpaceTest = Fixture;

TEST_F(DiskSpaceTest, NothingIsInTheFolder) { EXPECT_TRUE(std::filesystem::is_empty(folder / "")); }

TEST_F(DiskSpaceTest, WhatIsWrittenComesBack) {
  const std::vector<float> values = counting(kElements);
  ASSERT_TRUE(write(hand.whole, values).ok());
  EXPECT_EQ(read(hand.whole, kElements), values);
  const std::vector<float> half = read(hand.own, kElements / 2);  // of rank 1
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(half.front(), values[kElements / 2]);
  EXPECT_EQ(half.back(), values.back());
}

TEST_F(DiskSpaceTest, ARankWritesItsRangeOnly) {
  ASSERT_TRUE(write(hand.own, counting(kElements / 2)).ok());
  const std::vector<float> all = read(hand.whole, kElements);
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(all[kElements / 2 - 1], 0);
  EXPECT_EQ(all[kElements / 2], 1);
}

TEST_F(DiskSpaceTest, StateStartsAsZeros) {
  EXPECT_EQ(read(hand.whole, kElements), std::vector<float>(kElements));
  EXPECT_TRUE(status.ok());
}

TEST_F(DiskSpaceTest, TransientsStartAsNothing) {
  (void)read(hand.transient, 100);
  EXPECT_EQ(status.code(), "DC6706");
  ASSERT_TRUE(write(hand.transient, counting(100)).ok());
  EXPECT_EQ(read(hand.transient, 100), counting(100));
  EXPECT_TRUE(status.ok());
  disk->forget(hand.plan.tensors[static_cast<size_t>(hand.transient)].slice);
  (void)read(hand.transient, 100);
  EXPECT_EQ(status.code(), "DC6706");
}

TEST_F(DiskSpaceTest, PartsMayStartAnywhere) {
  ASSERT_TRUE(write(hand.whole, counting(kElements)).ok());
  const std::vector<float> part = {-5, -6, -7};
  for (int64_t first : {int64_t{0}, int64_t{65535}, kElements / 2 - 1, kElements - 3}) {
    ASSERT_TRUE(disk->write_part(hand.whole, first * 4, std::as_bytes(std::span(part))).ok());
    std::vector<float> around(5);
    const int64_t start = std::clamp<int64_t>(first - 1, 0, kElements - 5);
    ASSERT_TRUE(
        disk->read_part(hand.whole, start * 4, std::as_writable_bytes(std::span(around))).ok());
    const auto at = static_cast<size_t>(first - start);
    EXPECT_EQ(around[at], -5);
    EXPECT_EQ(around[at + 2], -7);
    if (at > 0) {
      EXPECT_EQ(around[at - 1], static_cast<float>(first));
    }
  }
}

TEST_F(DiskSpaceTest, EveryDamagedByteIsNoticed) {
  ASSERT_TRUE(write(hand.whole, counting(kElements)).ok());
  for (int64_t byte : {int64_t{0}, int64_t{262143}, int64_t{262144}, kElements * 4 - 1}) {
    damage_file_in(folder / "", byte);
    (void)read(hand.whole, kElements);
    ASSERT_FALSE(status.ok()) << byte;
    EXPECT_EQ(status.kind(), ErrorKind::Io);
    EXPECT_NE(status.sentence().find("'whole' came back from disk damaged"), std::string::npos)
        << status.sentence();
    damage_file_in(folder / "", byte);  // and back
    (void)read(hand.whole, kElements);
    EXPECT_TRUE(status.ok());
  }
}

// As by a signal to stop that comes while a large file is made.
TEST(DiskSpace, ASignalDoesNotKeepItFromItsRoom) {
  const ScratchFolder folder;
  const DiskPlan hand;
  interruptions = 2;
  const auto made = memory::DiskSpace::create(hand.plan, 0, folder / "");
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(interruptions, -1);
}

TEST(DiskSpace, AFolderMustBeThereAndWritable) {
  const DiskPlan hand;
  for (const char* folder : {"/there/is/no/such/folder", "/proc/self", "/etc/passwd"}) {
    const auto made = memory::DiskSpace::create(hand.plan, 0, folder);
    ASSERT_FALSE(made.ok()) << folder;
    EXPECT_EQ(made.status().kind(), ErrorKind::CannotWrite);
    EXPECT_EQ(made.status().code(), "DC6702");
    EXPECT_NE(made.status().sentence().find(folder), std::string::npos);
  }
}

// Sizes of files are limited instead of the disk.
TEST(DiskSpace, WithoutRoomItSaysSoAtOnce) {
  const ScratchFolder folder;
  const DiskPlan hand;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{4096, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto made = memory::DiskSpace::create(hand.plan, 0, folder / "");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().kind(), ErrorKind::CannotWrite);
  EXPECT_EQ(made.status().code(), "DC6703");
  EXPECT_NE(made.status().sentence().find("there is no room for the 800448 bytes"),
            std::string::npos)
      << made.status().sentence();
  EXPECT_TRUE(std::filesystem::is_empty(folder / ""));
}

TEST(OffloadMemory, HasWhatThePlanAsksFor) {
  HandPlan hand(1);
  const ScratchFolder folder;
  auto none = memory::OffloadMemory::create(hand.plan, 0, "", device::cpu_device());
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->mapped[Space::Host].base(), nullptr);
  EXPECT_EQ(none->disk, nullptr);
  hand.tensor("h", DType::F32, {1000}, -1, 0, 0, Space::Host);
  hand.tensor("d", DType::F32, {1000}, -1, 0, 0, Space::Disk);
  const auto nowhere = memory::OffloadMemory::create(hand.plan, 0, "", device::cpu_device());
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.status().kind(), ErrorKind::Usage);
  EXPECT_EQ(nowhere.status().code(), "DC6707");
  const auto both = memory::OffloadMemory::create(hand.plan, 0, folder / "", device::cpu_device());
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->mapped[Space::Host].bytes(), 4032);
  EXPECT_EQ(both->mapped[Space::Host].base()[4031], std::byte{0});
  EXPECT_NE(both->disk, nullptr);
}

}  // namespace
}  // namespace dc::runtime::test
