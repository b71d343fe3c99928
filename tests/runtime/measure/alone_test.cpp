// Kernels timed by themselves, on ranks that are threads of this process.
#include "runtime/measure/alone.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "runtime/comm/agreement.h"
#include "runtime/plan/kernel_signature.h"
#include "tests/runtime/exec/hand_plan.h"

namespace dc::runtime {
namespace {

using measure::AloneTimings;

// y = (a + column) * a, a being a quarter of a MiB; y lies where a does.
plan::Plan gate() {
  test::HandPlan hand(1);
  const int32_t a = hand.tensor("a", base::DType::F32, {256, 256}),
                column = hand.tensor("column", base::DType::F32, {256, 1});
  plan::Instruction in;
  in.provider = plan::Provider::Fused;
  in.op = "dc.fused";
  for (const auto& [name, id] : {std::pair("a0", a), std::pair("a1", column)}) {
    plan::Arg arg;
    arg.name = name;
    arg.kind = plan::ArgKind::Tensor;
    arg.i = id;
    in.args.push_back(arg);
  }
  plan::Arg body;
  body.name = "body";
  body.kind = plan::ArgKind::String;
  body.s = "t0:f32=add.Tensor(self=a0,other=a1);t1:f32=mul.Tensor(self=t0,other=a0);->t1";
  in.args.push_back(body);
  in.outputs = {a};
  in.reads = {a, column};
  in.writes = {a};
  hand.plan.programs.resize(1);
  hand.plan.programs[0].instructions = {in};
  return hand.plan;
}

TEST(LoneKernel, HasMemoryOfItsOwnForEachTensor) {
  const plan::Plan plan = gate();
  const plan::Instruction& kernel = plan.programs[0].instructions[0];
  const plan::Plan lone = measure::lone_kernel(plan, kernel);
  ASSERT_EQ(lone.programs.size(), 1u);
  ASSERT_EQ(lone.programs[0].instructions.size(), 1u);
  EXPECT_EQ(plan::signature_of(lone, lone.programs[0].instructions[0]),
            plan::signature_of(plan, kernel));
  ASSERT_EQ(lone.tensors.size(), 3u);
  int64_t end = 0;
  for (size_t i = 0; i < lone.tensors.size(); ++i) {
    const plan::Slice& slice = lone.slices[static_cast<size_t>(lone.tensors[i].slice)];
    EXPECT_EQ(slice.offset, end);
    EXPECT_EQ(slice.offset % 64, 0);
    EXPECT_EQ(slice.bytes, i == 1 ? 1024 : 262144);
    end = slice.offset + slice.bytes;
  }
}

// The rows of each rank, or its failure.
std::vector<base::Result<std::vector<AloneTimings>>> measured(const std::vector<plan::Plan>& good,
                                                              const std::vector<plan::Plan>& last) {
  constexpr int kRanks = 2;
  std::vector<base::Result<std::vector<AloneTimings>>> found(kRanks, std::vector<AloneTimings>());
  auto jobs = comm::connect_threads(kRanks, {});
  std::vector<std::thread> threads;
  threads.reserve(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      comm::ProcessGroup& job = *jobs[static_cast<size_t>(rank)];
      auto& own = found[static_cast<size_t>(rank)];
      const measure::Progress none = [](double, std::string_view) {};
      own = measure::measure_alone(rank + 1 < kRanks ? good : last, job.control(), {3, 2, 100'000},
                                   none);
      job.leave(own.ok() ? base::Status() : own.status());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return found;
}

TEST(Alone, WarmAndColdTheSameOnAllRanks) {
  const plan::Plan plan = gate();
  const std::vector<plan::Plan> kernels(
      2, measure::lone_kernel(plan, plan.programs[0].instructions[0]));
  const auto found = measured(kernels, kernels);
  for (const auto& rows : found) {
    ASSERT_TRUE(rows.ok()) << rows.status().to_string();
    ASSERT_EQ(rows->size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      const AloneTimings& row = (*rows)[i];
      EXPECT_GT(row.warm.fastest_ns, 0);
      EXPECT_LE(row.warm.fastest_ns, row.warm.median_ns);
      EXPECT_GE(row.warm.samples, 9);
      EXPECT_EQ(row.cold.samples, 2);
      EXPECT_GT(row.cold.fastest_ns, row.warm.fastest_ns);
      EXPECT_EQ(row.warm.median_ns, (*found[0])[i].warm.median_ns);
      EXPECT_EQ(row.cold.median_ns, (*found[0])[i].cold.median_ns);
    }
  }
}

TEST(Alone, AFailingRankIsNamedByTheOthers) {
  const plan::Plan plan = gate();
  plan::Plan good = measure::lone_kernel(plan, plan.programs[0].instructions[0]), bad = good;
  bad.programs[0].instructions[0].args.back().s = "t0:f32=nothing.default(self=a0);->t0";
  const auto found = measured({good}, {bad});
  ASSERT_FALSE(found[0].ok());
  ASSERT_FALSE(found[1].ok());
  EXPECT_TRUE(comm::is_reported_elsewhere(found[0].status()));
  EXPECT_THAT(found[0].status().to_string(), testing::HasSubstr("rank 1"));
  EXPECT_FALSE(comm::is_reported_elsewhere(found[1].status()));
}

}  // namespace
}  // namespace dc::runtime
