// Collectives of some of the ranks: sums inside a host, then across hosts.
#include <gtest/gtest.h>

#include "runtime/exec/executor.h"
#include "runtime/plan/mesh.h"
#include "tests/runtime/comm/conformance.h"
#include "tests/runtime/exec/hand_plan.h"

namespace dc::runtime::test {
namespace {

using base::DType;
using plan::CollectiveKind;

constexpr uint32_t kHost = 0b01, kInside = 0b10;
constexpr int64_t kElements = 1000;

// g, whole on each rank, is summed: reduce_scatter inside the host, all_reduce of the shards across
// hosts, all_gather inside the host. `in_place`: the shard is this rank's range of `whole`.
struct HierarchicalSum : HandPlan {
  HierarchicalSum(int hosts, int per_host, bool in_place) : HandPlan(hosts * per_host) {
    plan.mesh = {{"host", hosts}, {"dp", per_host}};
    plan.groups = {{kInside, 1}, {kHost, 1}};
    const int64_t shard = base::round_up((kElements + per_host - 1) / per_host, 32);
    const int64_t part = (shard + hosts - 1) / hosts;
    g = tensor("g", DType::F32, {kElements});
    whole = tensor("whole", DType::F32, {per_host * shard});
    own = in_place ? own_range(whole, shard) : tensor("own", DType::F32, {shard});
    plan.tensors[static_cast<size_t>(own)].stride_axes = kInside;
    plan.tensors[static_cast<size_t>(whole)].sizes = {kElements};
    collective(CollectiveKind::ReduceScatter, g, own, kElements, shard);
    collective(CollectiveKind::AllReduce, own, own, shard, part).group = 1;
    collective(CollectiveKind::AllGather, own, whole, kElements, shard);
  }
  int32_t g, whole, own;
};

// In rank order at each level.
float expected(const plan::Plan& plan, int64_t i, int salt) {
  float sum = 0;
  for (int32_t host = 0; host < plan.mesh[0].second; ++host) {
    float inside = 0;
    for (int32_t local = 0; local < plan.mesh[1].second; ++local) {
      const float own = conformance::number(host * plan.mesh[1].second + local, i, salt);
      inside = local == 0 ? own : inside + own;
    }
    sum = host == 0 ? inside : sum + inside;
  }
  return sum;
}

float* floats(const exec::Executor& executor, int32_t tensor) {
  return static_cast<float*>(executor.tensor(tensor).data);
}

void sum_many_times(const HierarchicalSum& hand) {
  on_ranks(hand.plan.world(), {}, [&](comm::ProcessGroup& job, int rank) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    auto executor = exec::Executor::prepare(hand.plan, job, *slab, {});
    DC_ASSERT_OK(executor.status());
    for (int run = 0; run < 20; ++run) {
      for (int64_t i = 0; i < kElements; ++i) {
        floats(**executor, hand.g)[i] = conformance::number(rank, i, run);
      }
      DC_ASSERT_OK((*executor)->run(0));
      for (int64_t i = 0; i < kElements; ++i) {
        ASSERT_EQ(floats(**executor, hand.whole)[i], expected(hand.plan, i, run)) << i;
      }
    }
  });
}

TEST(ExecutorGroups, SumsInsideThenAcross) {
  for (const auto& [hosts, per_host] : {std::pair(2, 2), {2, 3}, {3, 2}, {1, 4}, {4, 1}}) {
    for (const bool in_place : {false, true}) {
      SCOPED_TRACE(std::to_string(hosts) + " hosts of " + std::to_string(per_host) +
                   (in_place ? " in place" : ""));
      sum_many_times(HierarchicalSum(hosts, per_host, in_place));
    }
  }
}

// The stride of `own` counts all ranks; along the mesh's last axis that is the same distance, along
// the first it is that of a whole host, and along no axis of the group it is none.
TEST(ExecutorGroups, AStrideAlongOtherAxesThanTheGroups) {
  HandPlan hand(6);
  hand.plan.mesh = {{"host", 2}, {"dp", 3}};
  hand.plan.groups = {{kInside, 1}, {kHost, 1}};
  const int32_t rows = hand.tensor("rows", DType::F32, {6});
  const int32_t row = hand.own_range(rows, 1);
  const int32_t inside = hand.tensor("inside", DType::F32, {3});
  const int32_t across = hand.tensor("across", DType::F32, {2});
  hand.collective(CollectiveKind::AllGather, row, inside, 3, 1);
  hand.collective(CollectiveKind::AllGather, row, across, 2, 1).group = 1;
  on_ranks(6, {}, [&](comm::ProcessGroup& job, int rank) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    auto executor = exec::Executor::prepare(hand.plan, job, *slab, {});
    DC_ASSERT_OK(executor.status());
    *floats(**executor, row) = static_cast<float>(10 + rank);
    DC_ASSERT_OK((*executor)->run(0));
    EXPECT_EQ(floats(**executor, rows)[rank], static_cast<float>(10 + rank));
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(floats(**executor, inside)[i], static_cast<float>(10 + (rank - rank % 3) + i));
    }
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(floats(**executor, across)[i], static_cast<float>(10 + rank % 3 + 3 * i));
    }
  });
}

TEST(ExecutorGroups, MembersAtUnequalDistancesAreRefused) {
  HandPlan hand(4);
  hand.plan.mesh = {{"host", 2}, {"dp", 2}};
  const int32_t whole = hand.tensor("whole", DType::F32, {4});
  const int32_t half = hand.own_range(whole, 1);
  hand.plan.tensors[static_cast<size_t>(half)].stride_axes = kInside;
  hand.collective(CollectiveKind::AllGather, half, whole, 4, 1);  // of all ranks
  on_ranks(4, {}, [&](comm::ProcessGroup& job, int) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    const auto executor = exec::Executor::prepare(hand.plan, job, *slab, {});
    ASSERT_FALSE(executor.ok());
    EXPECT_EQ(executor.status().code(), "DC6620");
  });
}

}  // namespace
}  // namespace dc::runtime::test
