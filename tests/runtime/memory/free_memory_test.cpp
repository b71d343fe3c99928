#include "runtime/memory/free_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/runtime/train/scratch_folder.h"

namespace dc::runtime::test {
namespace {

class FreeMemory : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  ScratchFolder scratch_;
  std::string root_ = scratch_ / "root";
};

TEST_F(FreeMemory, OfTheHostAlone) {
  EXPECT_EQ(memory::free_memory(root_), std::nullopt);
  put("/proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    5000 kB\nSwapFree: 100 kB\n");
  EXPECT_EQ(memory::free_memory(root_), 5100 * 1024);
}

TEST_F(FreeMemory, OfVersionTwoTheTightestGroupCounts) {
  put("/proc/meminfo", "MemAvailable: 5000 kB\n");
  put("/proc/self/cgroup", "0::/job/task\n");
  put("/sys/fs/cgroup/job/task/memory.max", "max\n");
  put("/sys/fs/cgroup/job/task/memory.current", "70000\n");
  EXPECT_EQ(memory::free_memory(root_), 5000 * 1024);
  put("/sys/fs/cgroup/job/memory.max", "100000\n");
  put("/sys/fs/cgroup/job/memory.current", "80000\n");
  put("/sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 2000\nactive_file 3000\n");
  EXPECT_EQ(memory::free_memory(root_), 25000);
  put("/sys/fs/cgroup/job/memory.current", "200000\n");
  EXPECT_EQ(memory::free_memory(root_), 0);
}

TEST_F(FreeMemory, OfVersionOne) {
  put("/proc/meminfo", "MemAvailable: 5000 kB\n");
  put("/proc/self/cgroup", "7:cpu,cpuacct:/x\n4:memory:/a\n1:name=systemd:/\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
  put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "50000\n");
  put("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "30000\n");
  put("/sys/fs/cgroup/memory/a/memory.stat", "inactive_file 9\ntotal_inactive_file 400\n");
  EXPECT_EQ(memory::free_memory(root_), 20400);
}

TEST_F(FreeMemory, OfThisMachine) { EXPECT_GT(memory::free_memory().value_or(1), 0); }

}  // namespace
}  // namespace dc::runtime::test
