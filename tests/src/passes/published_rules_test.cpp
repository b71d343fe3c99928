// The published rules give what their authors' tests and logs say.
#include "src/passes/published/published_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace dc::passes::published {
namespace {

using ::testing::ElementsAre;

// Equal time for all: smaller ones save more per byte.
std::vector<Parameter> of_sizes(const std::vector<int64_t>& sizes) {
  std::vector<Parameter> parameters;
  for (int64_t bytes : sizes) parameters.push_back({base::Nanos{1000}, bytes});
  return parameters;
}

TEST(KeepResident, UpstreamVectors) {
  EXPECT_EQ(usable(1000), 900);
  EXPECT_EQ(headroom(900, 980), 0);
  EXPECT_TRUE(keep_resident(of_sizes({40, 80, 120}), headroom(900, 980)).empty());
  EXPECT_THAT(keep_resident(of_sizes({40, 80, 120}), headroom(900, 780)), ElementsAre(0, 1));
  EXPECT_THAT(keep_resident(of_sizes({100, 240}), headroom(900, 800)), ElementsAre(0));
}

TEST(KeepResident, StopsAtTheFirstMisfit) {
  const std::vector<Parameter> parameters = {
      {base::Nanos{100}, 10}, {base::Nanos{900}, 100}, {base::Nanos{50}, 10}};
  EXPECT_THAT(keep_resident(parameters, 50), ElementsAre(0));
}

TEST(KeepResident, TakesTheLastByteAndCountsNothingForEmptyParameters) {
  EXPECT_THAT(keep_resident(of_sizes({40, 80}), 120), ElementsAre(0, 1));
  EXPECT_THAT(keep_resident(of_sizes({0, 80}), 80), ElementsAre(1, 0));
}

// All-gather on 32 GPUs of 4 nodes, as their log has it: bytes, nanoseconds.
base::Nanos measured(int64_t bytes) {
  static const std::vector<std::pair<int64_t, int64_t>> kTable = {
      {64, 110'000},          {64 << 10, 300'000},
      {1 << 20, 220'000},     {16 << 20, 320'000},
      {64 << 20, 750'000},    {128 << 20, 990'000},
      {256 << 20, 2'070'000}, {512 << 20, 3'090'000},
      {1 << 30, 5'960'000},   {int64_t{2} << 30, 11'760'000}};
  size_t i = 1;
  while (i + 1 < kTable.size() && kTable[i].first < bytes) ++i;
  const auto [x0, y0] = kTable[i - 1];
  const auto [x1, y1] = kTable[i];
  return {y0 + (y1 - y0) * (bytes - x0) / (x1 - x0)};
}

// Llama-3-70B in bf16: with 28.88 GB of headroom their log shows 491 parameters, 28.86 GB.
TEST(KeepResident, Llama70BAsLogged) {
  std::vector<int64_t> sizes(161, 16 << 10);                 // norms
  sizes.insert(sizes.end(), 160, 16 << 20);                  // k, v
  sizes.insert(sizes.end(), 160, 128 << 20);                 // q, o
  sizes.insert(sizes.end(), 240, 448 << 20);                 // gate, up, down
  sizes.insert(sizes.end(), 2, int64_t{128256} * 8192 * 2);  // embedding, head
  std::vector<Parameter> parameters;
  for (int64_t bytes : sizes) parameters.push_back({measured(bytes) * 2, bytes});
  const std::vector<size_t> kept = keep_resident(parameters, 28'880'000'000);
  EXPECT_EQ(kept.size(), 491U);
  int64_t bytes = 0;
  for (size_t i : kept) bytes += sizes[i];
  EXPECT_NEAR(static_cast<double>(bytes) * 1e-9, 28.86, 0.005);
  EXPECT_EQ(bytes, int64_t{161} * (16 << 10) + int64_t{160} * (16 << 20) +
                       int64_t{160} * (128 << 20) + int64_t{10} * (448 << 20));
}

TEST(Fuse, UntilLatencyIsAFifth) {
  EXPECT_TRUE(fuse({100}, {100}, {119}, 1000));
  EXPECT_FALSE(fuse({100}, {100}, {120}, 1000));
  EXPECT_FALSE(fuse({100}, {100}, {110}, kGroupBytes));
}

TEST(OffloadStates, UpstreamVector) {
  EXPECT_EQ(usable_beside_states(1009), 807);
  const std::vector<int64_t> states = {32, 32, 32};
  EXPECT_EQ(states_that_leave(std::vector<int64_t>{100}, states, 150), 2U);
  EXPECT_EQ(states_that_leave(std::vector<int64_t>{20, 100, 50}, states, 150), 2U);
}

TEST(OffloadStates, NoneWithRoomAndAllWithout) {
  const std::vector<int64_t> states = {32, 32, 32};
  EXPECT_EQ(states_that_leave(std::vector<int64_t>{54}, states, 150), 0U);
  EXPECT_EQ(states_that_leave(std::vector<int64_t>{55}, states, 150), 1U);
  EXPECT_EQ(states_that_leave(std::vector<int64_t>{300}, states, 150), 3U);
  EXPECT_EQ(states_that_leave({}, states, 10), 0U);
}

TEST(OffloadStates, ReturnAsThePeaksToComeAllow) {
  const std::vector<int64_t> states = {32, 32};
  // The second node's 110 stands before the first one's 100; strictly below the budget.
  EXPECT_THAT(states_that_return(std::vector<int64_t>{100, 110, 60, 40}, states, 142),
              ElementsAre(2, 2));
  EXPECT_THAT(states_that_return(std::vector<int64_t>{100, 110, 80, 77}, states, 142),
              ElementsAre(2, 3));
  EXPECT_THAT(states_that_return(std::vector<int64_t>{100, 110, 80, 78}, states, 142),
              ElementsAre(2, 4));
  EXPECT_THAT(states_that_return(std::vector<int64_t>{10, 10}, states, 142), ElementsAre(0, 0));
}

// `count` nodes of 1 ms with peaks of `peak` bytes.
std::vector<BackwardNode> milliseconds(size_t count, int64_t peak = 0) {
  return std::vector<BackwardNode>(count, {base::Nanos{1'000'000}, peak});
}

TEST(OffloadActivations, UpstreamVector) {
  const int64_t bytes = 32 << 20;
  const base::Nanos copy{bytes / 10};  // 10 GB/s
  EXPECT_EQ(reload_ahead(milliseconds(10), bytes, copy, 0, INT64_MAX), 4U);
  EXPECT_EQ(reload_ahead(milliseconds(10), bytes, base::Nanos{4'000'000}, 0, INT64_MAX), 4U);
  EXPECT_EQ(reload_ahead(milliseconds(10), bytes, base::Nanos{4'000'001}, 0, INT64_MAX), 5U);
  EXPECT_EQ(reload_ahead(milliseconds(2), bytes, copy, 0, INT64_MAX), 2U);
}

TEST(OffloadActivations, ReloadsNoEarlierThanThereIsRoom) {
  std::vector<BackwardNode> before = milliseconds(10, 100);
  before[7].peak = 101;
  const base::Nanos copy{5'000'000};
  EXPECT_EQ(reload_ahead(before, 20, copy, 30, 150), 2U);
  EXPECT_EQ(reload_ahead(before, 20, copy, 30, 151), 5U);
  EXPECT_EQ(reload_ahead(before, 20, copy, 31, 150), 0U);
}

TEST(OffloadActivations, LargestStayAndSmallerOnesFillTheRest) {
  EXPECT_EQ(kLeastActivation, 5242880);
  EXPECT_THAT(activations_that_stay(std::vector<int64_t>{10, 60, 30, 50, 10}, 100),
              ElementsAre(1, 2, 0));
  EXPECT_TRUE(activations_that_stay(std::vector<int64_t>{10, 60}, 0).empty());
}

}  // namespace
}  // namespace dc::passes::published
