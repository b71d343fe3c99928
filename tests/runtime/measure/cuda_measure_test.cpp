// What `dcc profile --device cuda` measures, on the doubles of CUDA's libraries (tests/double).
// That there are figures, and of what: nothing about GPUs follows from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "runtime/comm/nccl.h"
#include "runtime/exec/open_gpu.h"
#include "runtime/measure/busy.h"
#include "runtime/measure/machine.h"
#include "runtime/measure/measure.h"
#include "runtime/plan/kernel_signature.h"
#include "src/base/step_scalars.h"
#include "tests/runtime/exec/hand_plan.h"
#include "tests/runtime/kernel/cuda/kernel_cache.h"
#include "tests/runtime/measure/expect_rows.h"

namespace dc::runtime {
namespace {

using base::DType;
using base::KernelMeasurement;

device::Device& gpu() { return *device::open_device(base::DeviceKind::Cuda).value(); }

// Runs `body` on every rank at once, each with a GPU: the same one.
void on_gpus(int ranks, const std::function<void(int, comm::ProcessGroup&)>& body) {
  if (ranks == 1) {
    comm::CommOptions options;
    options.device = &gpu();
    return test::on_ranks(1, options, [&](comm::ProcessGroup& job, int) { body(0, job); });
  }
  auto hosts = comm::connect_threads(ranks, {});
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto job = comm::add_nccl(std::move(hosts[static_cast<size_t>(rank)]),
                                exec::open_gpu(0, std::chrono::milliseconds(60'000)));
      DC_ASSERT_OK(job.status());
      body(rank, **job);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A product, kernels that are compiled, of which one is there twice, and what the stream does.
class SmallStep : public test::HandPlan {
 public:
  static constexpr int64_t kSize = 24;

  SmallStep() : HandPlan(1, 1) {
    plan.hyperparameters = tensor("hyperparameters", DType::F64, {base::kHyperGroups});
    const int32_t a = tensor("a", DType::F32, {kSize, kSize}),
                  b = tensor("b", DType::F32, {kSize, kSize}),
                  c = tensor("c", DType::F32, {kSize, kSize}),
                  sum = tensor("sum", DType::F32, {kSize, kSize});
    plan::Instruction& product = native("aten.mm.default", {a, b}, {}, {c});
    product.args[0].name = "self";
    product.args[1].name = "mat2";
    product.reads = {a, b};
    product.writes = {c};
    native("dc.accumulate", {sum, c});
    native("dc.accumulate", {sum, c});
    native("dc.copy", {a, sum});
    native("dc.zero", {sum});
  }
};

class CudaMeasure : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, CudaMeasure, testing::Values(1, 2));

TEST_P(CudaMeasure, EveryKernelHasATimeAndItsScratch) {
  const SmallStep hand;
  std::vector<std::vector<KernelMeasurement>> seen(static_cast<size_t>(GetParam()));
  on_gpus(GetParam(), [&](int rank, comm::ProcessGroup& job) {
    auto rows = measure::measure_scratch(hand.plan, job.device());
    DC_ASSERT_OK(rows.status());
    auto timed = measure::measure_kernels(hand.plan, std::move(rows).value(), job, {1, 5},
                                          [](double, std::string_view) {});
    DC_ASSERT_OK(timed.status());
    seen[static_cast<size_t>(rank)] = std::move(timed).value();
  });
  for (const std::vector<KernelMeasurement>& rows : seen) {
    ASSERT_EQ(rows.size(), 4u);
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::string_view op = rows[i].signature.op();
      EXPECT_GT(rows[i].timing.median_ns, 0) << op;
      EXPECT_LT(rows[i].timing.median_ns, int64_t{1} << 32) << op;
      EXPECT_EQ(rows[i].timing.samples, op == "dc.accumulate" ? 10 : 5) << op;
      // What the double's algorithm asks for: the result, once more.
      EXPECT_EQ(rows[i].scratch_bytes,
                op == "aten.mm.default" ? 192 + 4 * SmallStep::kSize * SmallStep::kSize : 0)
          << op;
      EXPECT_EQ(rows[i].timing.median_ns, seen[0][i].timing.median_ns);  // of the slowest rank
    }
  }
}

TEST(CudaMeasure, WhatTheGpuHasNoKernelOfIsNamed) {
  SmallStep hand;
  hand.plan.programs[0].instructions[1].op = "aten.cumprod.default";
  const base::Status status = measure::measure_scratch(hand.plan, gpu()).status();
  EXPECT_EQ(base::exit_code(status.kind()), 81);
  EXPECT_THAT(status.to_string(), testing::HasSubstr("aten.cumprod.default"));
  hand.plan.programs[0].instructions[1].provider = plan::Provider::Aten;
  EXPECT_EQ(measure::measure_scratch(hand.plan, gpu()).status().code(), "DC6506");
}

TEST(CudaMeasure, CollectivesOverSizesAndNextToCompute) {
  measure::CollectiveSweep seen[2];
  on_gpus(2, [&](int rank, comm::ProcessGroup& job) {
    auto swept = measure::measure_collectives(job, 60'000, 1, 2, [](double, std::string_view) {});
    DC_ASSERT_OK(swept.status());
    seen[rank] = std::move(swept).value();
    EXPECT_EQ(measure::machine_of({}, job, 1, 2).communicator, "nccl");
  });
  test::expect_rows(seen, 3);  // 4, 16 and 64 KiB
  for (const base::TogetherMeasurement& row : seen[0].together) EXPECT_GE(row.timing.samples, 3);
}

TEST(CudaMeasure, CopiesBothWays) {
  const auto copies = measure::measure_copies(gpu(), "");
  DC_ASSERT_OK(copies.status());
  test::expect_rows(*copies, false);
}

// Products go on while this thread does something else, and end when they are told to.
TEST(CudaMeasure, ProductsKeepTheGpuBusy) {
  auto products = measure::make_products(gpu(), 7);
  DC_ASSERT_OK(products.status());
  EXPECT_EQ(products->size(), 1u);  // however many threads
  measure::Busy busy(gpu(), std::move(products).value());
  while (busy.products() < 20) std::this_thread::yield();
  DC_ASSERT_OK(busy.stop());
  const int64_t done = busy.products();
  EXPECT_GE(done, 20);
  EXPECT_EQ(busy.products(), done);
}

}  // namespace
}  // namespace dc::runtime
