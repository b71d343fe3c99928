#include "runtime/report/host_traffic.h"

#include <gtest/gtest.h>

namespace dc::runtime::plan {
namespace {

// Two hosts of two ranks; tensor 0 is bf16, tensor 1 is f32.
Plan with(CollectiveKind kind, uint32_t axes, const CollectiveBuffer& buffer, int32_t repeat = 1) {
  Plan plan;
  plan.mesh = {{"host", 2}, {"dp", 2}};
  plan.tensors.resize(2);
  plan.tensors[0].dtype = DType::BF16;
  plan.groups = {{axes, 1}};
  Instruction in;
  in.kind = InstructionKind::Collective;
  in.collective = kind;
  in.group = 0;
  in.buffers = {buffer};
  plan.programs.resize(1);
  plan.programs[0].instructions = {in};
  plan.step = {{0, repeat}};
  return plan;
}

// 100 elements in shards of 32: the ranks own 32, 32, 32 and 4.
TEST(HostTraffic, CountsWhatLeavesAHost) {
  using K = CollectiveKind;
  const CollectiveBuffer four{0, 1, 100, 32}, two{0, 1, 100, 64};
  // Each of two ranks gives its 32 f32 elements to the two ranks of the other host.
  EXPECT_EQ(report::sent_across_hosts(with(K::AllGather, kAllAxes, four)), 2 * 32 * 2 * 4);
  // Each of two ranks sends the 36 bf16 elements that the other host owns.
  EXPECT_EQ(report::sent_across_hosts(with(K::ReduceScatter, kAllAxes, four, 3)), 3 * 2 * 36 * 2);
  EXPECT_EQ(report::sent_across_hosts(with(K::AllReduce, kAllAxes, four)),
            2 * 36 * 2 + 2 * 32 * 2 * 4);
  EXPECT_EQ(report::sent_across_hosts(with(K::AllGather, 0b10, two)), 0);
  // Both ranks meet the one at their place: they send 36 elements and their sums of 64.
  EXPECT_EQ(report::sent_across_hosts(with(K::AllReduce, 0b01, two)), 2 * (36 * 2 + 64 * 4));
}

TEST(HostTraffic, IsNotKnownWithoutHosts) {
  Plan plan = with(CollectiveKind::AllGather, kAllAxes, {0, 1, 100, 32});
  plan.mesh = {{"dp", 4}};
  EXPECT_EQ(report::sent_across_hosts(plan), 0);
}

}  // namespace
}  // namespace dc::runtime::plan
