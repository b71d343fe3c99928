#include "src/ir/mesh.h"

#include <vector>

#include <gtest/gtest.h>

#include "src/ir/group.h"

namespace dc::ir {
namespace {

const Mesh kHosts{{{"host", 3}, {"dp", 2}}};

TEST(Mesh, RanksAreRowMajor) {
  EXPECT_EQ(kHosts.world(), 6);
  EXPECT_EQ(kHosts.size(0b01), 3);
  EXPECT_EQ(kHosts.size(0b10), 2);
  EXPECT_EQ(kHosts.size(0), 1);
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(kHosts.index(kAllAxes, rank), rank);
    EXPECT_EQ(kHosts.index(0b01, rank), rank / 2);
    EXPECT_EQ(kHosts.index(0b10, rank), rank % 2);
    EXPECT_EQ(kHosts.index(0, rank), 0);
  }
}

// Every rank is at one place of one group: places of the same group differ.
TEST(Mesh, GroupsOfThreeAxesPartitionTheRanks) {
  const Mesh mesh{{{"a", 2}, {"b", 3}, {"c", 2}}};
  for (AxisMask group = 0; group < 8; ++group) {
    std::vector<std::vector<bool>> seen(static_cast<size_t>(mesh.size(7U & ~group)),
                                        std::vector<bool>(static_cast<size_t>(mesh.size(group))));
    for (int rank = 0; rank < mesh.world(); ++rank) {
      const auto which = static_cast<size_t>(mesh.index(7U & ~group, rank));
      const auto place = static_cast<size_t>(mesh.index(group, rank));
      EXPECT_FALSE(seen[which][place]) << "mask " << group << " rank " << rank;
      seen[which][place] = true;
    }
  }
}

TEST(Mesh, AxesOfOneRankSplitNothing) {
  const Mesh mesh{{{"host", 1}, {"dp", 4}}};
  EXPECT_EQ(mesh.wide(), 0b10U);
  EXPECT_TRUE(mesh.is_world(0b10));
  EXPECT_FALSE(mesh.is_world(0b01));
  EXPECT_TRUE(Mesh{}.is_world(0));
  EXPECT_EQ(Mesh{}.shard_axes(), 1U);
  EXPECT_EQ(kHosts.shard_axes(), 0b10U);
}

TEST(Group, IsNamedOnlyWhereItIsNotTheWorld) {
  EXPECT_EQ(collective_args(kHosts, 64, 32).size(), 2U);
  EXPECT_EQ(collective_args(kHosts, 64, 32, 0b11).size(), 2U);
  Node node;
  node.kind = OpKind::AllGatherStart;
  node.args = collective_args(kHosts, 64, 32);
  EXPECT_EQ(group_of(node), kAllAxes);
  node.args = collective_args(kHosts, 64, 32, 0b10);
  ASSERT_EQ(node.args.size(), 3U);
  EXPECT_EQ(std::get<std::vector<int64_t>>(node.args[2].value), std::vector<int64_t>{1});
  EXPECT_EQ(group_of(node), 0b10U);
}

}  // namespace
}  // namespace dc::ir
