#include "runtime/plan/peer_reads.h"

#include <gtest/gtest.h>

#include "tests/runtime/plan/plan_builder.h"

namespace dc::runtime::plan {
namespace {

using base::ByteRange;

int64_t begin_of(const Plan& plan, int32_t tensor) {
  const Tensor& entry = plan.tensors[static_cast<size_t>(tensor)];
  return plan.slices[static_cast<size_t>(entry.slice)].offset + entry.offset;
}
ByteRange from(int64_t begin, int64_t count, int64_t size) { return {begin, begin + count * size}; }

// Shards (32 numbers) and both ranks' rows of the table of norms (3 numbers each) are gathered, the
// gradient (60 numbers) is summed. What is gathered and the sums stay a rank's own.
TEST(PeerReads, AreWhatCollectivesGatherOrSum) {
  const Plan plan = test::tiny_plan();
  EXPECT_EQ(peer_reads(plan), base::merged({from(begin_of(plan, test::kShard), 32, 4),
                                            from(begin_of(plan, test::kTable), 6, 8),
                                            from(begin_of(plan, test::kGradient), 60, 4)}));
  EXPECT_EQ(peer_reads(test::evaluating_plan()), peer_reads(plan)) << "the same shard again";
}

TEST(PeerReads, OfAllReduceAreItsResultsToo) {
  Plan plan = test::tiny_plan();
  Instruction& reduce = plan.programs[0].instructions[test::kReduce];
  reduce.collective = CollectiveKind::AllReduce;
  const CollectiveBuffer& buffer = reduce.buffers[0];
  EXPECT_EQ(peer_reads(plan), base::merged({from(begin_of(plan, test::kShard), 32, 4),
                                            from(begin_of(plan, test::kTable), 6, 8),
                                            from(begin_of(plan, buffer.input), 60, 4),
                                            from(begin_of(plan, buffer.output), 60, 4)}));
}

// Along one axis of a mesh of two the ranks lie at two places, not at four.
TEST(PeerReads, OfRanksInGroupsAreAtTheirPlaces) {
  Plan plan = test::tiny_plan();
  plan.mesh = {{"host", 2}, {"dp", 2}};
  Tensor& row = plan.tensors[test::kTableRow];
  row.rank_stride = 24;
  row.stride_axes = 0b10;
  row.offset = 0;
  plan.programs[0].instructions = {plan.programs[0].instructions[test::kExchangeTable]};
  EXPECT_EQ(peer_reads(plan), std::vector({from(begin_of(plan, test::kTable), 2, 24)}));
  row.stride_axes = kAllAxes;
  EXPECT_EQ(peer_reads(plan), std::vector({from(begin_of(plan, test::kTable), 4, 24)}));
}

TEST(Merged, RangesAreAscendingAndApart) {
  EXPECT_EQ(base::merged({{8, 9}, {3, 5}, {5, 6}, {4, 5}, {7, 7}, {0, 1}}),
            (std::vector<ByteRange>{{0, 1}, {3, 6}, {8, 9}}));
  EXPECT_TRUE(base::merged({}).empty());
}

}  // namespace
}  // namespace dc::runtime::plan
