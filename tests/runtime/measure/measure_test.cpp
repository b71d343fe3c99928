// What `dcc profile` measures, on ranks that are threads of this process.
#include "runtime/measure/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "runtime/measure/busy.h"
#include "runtime/measure/hosts.h"
#include "runtime/measure/samples.h"
#include "runtime/plan/kernel_signature.h"
#include "tests/runtime/measure/expect_rows.h"
#include "tests/runtime/train/training_plan.h"
#include "tests/src/archive/temporary_folder.h"

namespace dc::runtime {
namespace {

using base::KernelMeasurement;
using base::Status;
using testing::HasSubstr;

TEST(Samples, MedianAndSpreadIgnoreOneOutlier) {
  const base::Timing timing = measure::summarize({10, 12, 11, 900, 9});
  EXPECT_EQ(timing.median_ns, 11);
  EXPECT_EQ(timing.fastest_ns, 9);
  EXPECT_EQ(timing.deviation_ns, 1);
  EXPECT_EQ(timing.samples, 5);
  EXPECT_EQ(measure::summarize({}).samples, 0);
  EXPECT_EQ(measure::summarize({7}).median_ns, 7);
}

std::string text(const plan::Plan& plan, const plan::Instruction& kernel) {
  return plan::signature_of(plan, kernel).text();
}

TEST(KernelSignature, SaysEverythingThatDecidesASpeed) {
  const test::TrainingPlan hand(2, 1);
  std::vector<std::string> keys;
  for (const plan::Instruction& in : hand.plan.programs[0].instructions) {
    if (in.kind == plan::InstructionKind::Kernel) keys.push_back(text(hand.plan, in));
  }
  EXPECT_THAT(keys, testing::Contains("dc.accumulate f32[70](1) f32[1,70](70,1) ->"));
  // Indices of parameters and groups decide nothing.
  plan::Plan other = hand.plan;
  for (plan::Instruction& in : other.programs[0].instructions) {
    for (plan::Arg& arg : in.args) {
      if (arg.name == "param") arg.i += 5;
    }
  }
  size_t at = 0;
  for (const plan::Instruction& in : other.programs[0].instructions) {
    if (in.kind != plan::InstructionKind::Kernel) continue;
    EXPECT_EQ(text(other, in), keys[at++]);
  }
}

TEST(KernelSignature, AttributesAndTypesOfAtenOpsCount) {
  test::HandPlan hand(1);
  const int32_t x = hand.tensor("x", base::DType::F32, {4, 8}),
                y = hand.tensor("y", base::DType::F32, {4, 8});
  plan::Instruction in;
  in.op = "aten.softmax.int";
  in.args.resize(3);
  in.args[0].name = "self";
  in.args[0].kind = plan::ArgKind::Tensor;
  in.args[0].i = x;
  in.args[1].name = "dim";
  in.args[1].kind = plan::ArgKind::Int;
  in.args[1].i = 1;
  in.args[2].name = "dtype";
  in.outputs = {y};
  const std::string key = text(hand.plan, in);
  EXPECT_EQ(key, "aten.softmax.int f32[4,8](8,1) dim=1 dtype=none -> f32[4,8](8,1)");
  in.args[1].i = 0;
  EXPECT_NE(text(hand.plan, in), key);
  in.args[1].i = 1;
  hand.plan.tensors[static_cast<size_t>(x)].strides = {1, 4};
  EXPECT_NE(text(hand.plan, in), key);
}

TEST(Measure, EveryKernelOnceAndTheSameOnAllRanks) {
  const test::TrainingPlan hand(1, 1);
  std::vector<KernelMeasurement> seen[2];
  std::vector<double> progress;
  test::on_ranks(2, {}, [&](comm::ProcessGroup& job, int rank) {
    auto rows = measure::measure_scratch(hand.plan, job.device());
    ASSERT_TRUE(rows.ok()) << rows.status().to_string();
    const measure::Progress told = [&](double fraction, std::string_view what) {
      EXPECT_EQ(what, "kernels");
      if (rank == 0) progress.push_back(fraction);
    };
    auto timed = measure::measure_kernels(hand.plan, std::move(rows).value(), job, {1, 5}, told);
    ASSERT_TRUE(timed.ok()) << timed.status().to_string();
    seen[rank] = std::move(timed).value();
  });
  std::map<base::KernelSignature, int> kernels;
  for (const plan::Instruction& in : hand.plan.programs[0].instructions) {
    if (in.kind == plan::InstructionKind::Kernel) ++kernels[plan::signature_of(hand.plan, in)];
  }
  ASSERT_EQ(seen[0].size(), kernels.size());
  for (size_t i = 0; i < seen[0].size(); ++i) {
    const KernelMeasurement& row = seen[0][i];
    EXPECT_EQ(row.signature.provider(), base::Provider::Native);
    EXPECT_GT(row.timing.median_ns, 0) << row.signature.text();
    EXPECT_LE(row.timing.fastest_ns, row.timing.median_ns);
    EXPECT_EQ(row.timing.samples, 5 * kernels[row.signature]) << row.signature.text();
    EXPECT_TRUE(i == 0 || seen[0][i - 1].signature < row.signature);
    EXPECT_EQ(seen[1][i].timing.median_ns, row.timing.median_ns);  // of the slowest rank
  }
  ASSERT_EQ(progress.size(), 6u);
  EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
  EXPECT_EQ(progress.back(), 1);
}

TEST(Measure, AFailingRankIsNamedByTheOthers) {
  const test::TrainingPlan good(1, 1);
  test::TrainingPlan bad(1, 1);
  bad.plan.programs[0].instructions[0].op = "dc.nothing";
  Status statuses[3];
  test::on_ranks(3, {}, [&](comm::ProcessGroup& job, int rank) {
    const plan::Plan& plan = rank == 1 ? bad.plan : good.plan;
    auto timed = measure::measure_kernels(plan, {}, job, {0, 1}, [](double, std::string_view) {});
    if (!timed.ok()) statuses[rank] = timed.status();
    job.leave(statuses[rank]);
  });
  for (const Status& status : statuses) ASSERT_FALSE(status.ok());
  EXPECT_THAT(statuses[1].to_string(), HasSubstr("dc.nothing"));
  for (int rank : {0, 2}) {
    EXPECT_EQ(statuses[rank].kind(), base::ErrorKind::PeerDied);
    EXPECT_THAT(statuses[rank].to_string(), HasSubstr("rank 1"));
  }
}

// Compute alone and then next to transfers, each for a thousand nanoseconds.
measure::Window window(int64_t alone, int64_t during) { return {{1000, alone}, {1000, during}}; }

TEST(Measure, SlowdownIsWhatComputeLostBesideTransfers) {
  const auto slowdown = [](int64_t alone, int64_t during) {
    return measure::slowdown_permille(std::vector{window(alone, during)});
  };
  EXPECT_EQ(slowdown(1000, 1000), 1000);
  EXPECT_EQ(slowdown(1000, 1100), 1000);  // noise
  EXPECT_EQ(slowdown(1000, 800), 1250);
  EXPECT_EQ(slowdown(1000, 500), 2000);
  EXPECT_EQ(slowdown(1000, 100), 4000);  // as much as is believed
  EXPECT_EQ(slowdown(1000, 0), 4000);
}

TEST(Measure, SlowdownIsNotThatOfOtherPrograms) {
  // Two of five windows while another program computes as well; in a third it does so all along.
  const std::vector windows{window(1000, 800), window(1000, 250), window(500, 400),
                            window(1000, 200), window(1000, 800)};
  EXPECT_EQ(measure::slowdown_permille(windows), 1250);
}

TEST(Measure, CollectivesOverSizes) {
  measure::CollectiveSweep seen[2];
  double last = 0;
  test::on_ranks(2, {}, [&](comm::ProcessGroup& job, int rank) {
    auto swept =
        measure::measure_collectives(job, 100'000, 1, 2, [&](double fraction, std::string_view) {
          if (rank != 0) return;
          EXPECT_GE(fraction, last);
          last = fraction;
        });
    ASSERT_TRUE(swept.ok()) << swept.status().to_string();
    seen[rank] = std::move(swept).value();
  });
  EXPECT_EQ(last, 1);
  test::expect_rows(seen, 4);  // 4, 16, 64 and 256 KiB: the largest value is inside
}

TEST(Measure, CollectivesInsideAndAcrossHosts) {
  measure::CollectiveSweep seen[4];
  double last = 0;
  test::on_ranks(4, {}, [&](comm::ProcessGroup& job, int rank) {
    auto swept =
        measure::measure_collectives(job, 4096, 1, 2, [&](double fraction, std::string_view) {
          if (rank == 0) last = fraction;
        });
    ASSERT_TRUE(swept.ok()) << swept.status().to_string();
    seen[rank] = std::move(swept).value();
  });
  EXPECT_EQ(last, 1);
  using base::CollectiveLevel;
  const std::vector<std::pair<CollectiveLevel, int>> levels = {
      {CollectiveLevel::World, 4}, {CollectiveLevel::Inside, 2}, {CollectiveLevel::Across, 2}};
  ASSERT_EQ(seen[0].alone.size(), 3u * levels.size());
  ASSERT_EQ(seen[0].during_compute.size(), seen[0].alone.size());
  for (size_t i = 0; i < seen[0].alone.size(); ++i) {
    const auto [level, ranks] = levels[i / 3];
    EXPECT_EQ(seen[0].alone[i].level, level);
    EXPECT_EQ(seen[0].alone[i].ranks, ranks);
    EXPECT_GT(seen[0].alone[i].timing.median_ns, 0);
    EXPECT_EQ(seen[3].alone[i].timing.median_ns, seen[0].alone[i].timing.median_ns);
    EXPECT_EQ(seen[0].during_compute[i].level, level);
    EXPECT_EQ(seen[0].during_compute[i].ranks, ranks);
  }
}

TEST(Measure, GroupsOfHosts) {
  using base::CollectiveLevel;
  EXPECT_EQ(measure::ranks_at(CollectiveLevel::Inside, 3, 4, 6), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(measure::ranks_at(CollectiveLevel::Across, 3, 4, 6), (std::vector<int>{1, 4}));
  EXPECT_EQ(measure::ranks_at(CollectiveLevel::World, 3, 4, 6),
            (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

TEST(Measure, CopiesAndTheProcessorHaveNames) {
  const tests::TemporaryFolder folder;
  const auto copies = measure::measure_copies(device::cpu_device(), "");
  ASSERT_TRUE(copies.ok()) << copies.status().to_string();
  test::expect_rows(*copies, false);
  const auto with_disk = measure::measure_copies(device::cpu_device(), folder / "");
  ASSERT_TRUE(with_disk.ok()) << with_disk.status().to_string();
  test::expect_rows(*with_disk, true);
  EXPECT_EQ(measure::measure_copies(device::cpu_device(), folder / "none").status().code(),
            "DC6702");
  EXPECT_FALSE(measure::cpu_name().empty());
}

}  // namespace
}  // namespace dc::runtime
