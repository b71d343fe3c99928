#include "runtime/plan/mesh.h"

#include <gtest/gtest.h>

namespace dc::runtime::plan {
namespace {

Plan on(std::vector<std::pair<std::string, int32_t>> mesh) {
  Plan plan;
  plan.mesh = std::move(mesh);
  return plan;
}

TEST(Mesh, RanksRunFastestAlongTheLastAxis) {
  const Plan plan = on({{"host", 2}, {"dp", 3}});
  EXPECT_EQ(ranks_of_group(plan, 0b10, 1), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(ranks_of_group(plan, 0b10, 4), (std::vector<int32_t>{3, 4, 5}));
  EXPECT_EQ(ranks_of_group(plan, 0b01, 4), (std::vector<int32_t>{1, 4}));
  EXPECT_EQ(ranks_of_group(plan, kAllAxes, 4), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(axes_text(plan, 0b01), "host");
  EXPECT_EQ(axes_text(plan, kAllAxes), "host+dp");
}

// Against coordinates, counted one rank at a time.
TEST(Mesh, GroupsPartitionTheRanks) {
  const Plan plan = on({{"a", 2}, {"b", 3}, {"c", 1}, {"d", 4}});
  ASSERT_TRUE(has_ranks(plan));
  std::vector<std::vector<int32_t>> coordinates;
  for (int32_t a = 0; a < 2; ++a)
    for (int32_t b = 0; b < 3; ++b)
      for (int32_t d = 0; d < 4; ++d) coordinates.push_back({a, b, 0, d});
  ASSERT_EQ(static_cast<size_t>(plan.world()), coordinates.size());
  for (uint32_t axes = 1; axes < 16; ++axes) {
    EXPECT_EQ(is_world(plan, axes), axes == 15);
    for (int32_t rank = 0; rank < plan.world(); ++rank) {
      std::vector<int32_t> expected;
      for (int32_t other = 0; other < plan.world(); ++other) {
        bool same = true;
        for (size_t axis = 0; axis < 4; ++axis) {
          const bool free = (axes >> axis & 1) != 0;
          const auto r = static_cast<size_t>(rank), o = static_cast<size_t>(other);
          same = same && (free || coordinates[r][axis] == coordinates[o][axis]);
        }
        if (same) expected.push_back(other);
      }
      const std::vector<int32_t> ranks = ranks_of_group(plan, axes, rank);
      EXPECT_EQ(ranks, expected) << "axes " << axes << " rank " << rank;
      EXPECT_EQ(group_size(plan, axes), static_cast<int32_t>(ranks.size()));
      EXPECT_EQ(ranks[static_cast<size_t>(index_in_group(plan, axes, rank))], rank);
    }
  }
}

TEST(Mesh, ARankStrideCountsPlacesInTheGroup) {
  const Plan plan = on({{"host", 2}, {"dp", 3}});
  Tensor tensor;
  tensor.rank_stride = 64;
  EXPECT_EQ(rank_offset(plan, tensor, 4), 256);
  tensor.stride_axes = 0b10;
  EXPECT_EQ(rank_offset(plan, tensor, 4), 64);
  tensor.stride_axes = 0b01;
  EXPECT_EQ(rank_offset(plan, tensor, 4), 64);
  EXPECT_EQ(rank_offset(plan, tensor, 2), 0);
}

TEST(Mesh, LevelsOfGroups) {
  using base::CollectiveLevel;
  const Plan plan = on({{"host", 2}, {"dp", 3}});
  EXPECT_EQ(level_of(plan, kAllAxes), CollectiveLevel::World);
  EXPECT_EQ(level_of(plan, 0b10), CollectiveLevel::Inside);
  EXPECT_EQ(level_of(plan, 0b01), CollectiveLevel::Across);
  EXPECT_EQ(level_of(on({{"host", 1}, {"dp", 3}}), 0b10), CollectiveLevel::World);
}

TEST(Mesh, WithoutRanks) {
  EXPECT_FALSE(has_ranks(on({})));
  EXPECT_FALSE(has_ranks(on({{"a", 0}})));
  EXPECT_FALSE(has_ranks(on({{"a", 1 << 16}, {"b", 1 << 16}})));
  EXPECT_TRUE(has_ranks(on({{"a", 1 << 16}, {"b", 1}})));
}

}  // namespace
}  // namespace dc::runtime::plan
