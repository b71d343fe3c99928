#include "src/base/on_all_cores.h"

#include <atomic>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace dc::base {
namespace {

TEST(OnAllCores, EachPartIsDoneOnce) {
  for (const int64_t count : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> times(static_cast<size_t>(count));
    const Status status = on_all_cores(count, [&](int64_t part) {
      ++times[static_cast<size_t>(part)];
      return ok_status();
    });
    EXPECT_TRUE(status.ok());
    for (const auto& each : times) EXPECT_EQ(each, 1);
  }
}

TEST(OnAllCores, TheFirstFailureByNumberIsTheResultAndTheRestIsDone) {
  std::atomic<int> done{0};
  const Status status = on_all_cores(100, [&](int64_t part) {
    ++done;
    if (part == 70) throw std::runtime_error("thrown");
    return part == 40 || part == 90
               ? Status(ErrorKind::BadInput, "DC0001", "part " + std::to_string(part))
               : ok_status();
  });
  EXPECT_EQ(done, 100);
  EXPECT_EQ(status.sentence(), "part 40");
  EXPECT_EQ(on_all_cores(2, [](int64_t) -> Status { throw std::bad_alloc(); }).kind(),
            ErrorKind::OutOfMemory);
}

}  // namespace
}  // namespace dc::base
