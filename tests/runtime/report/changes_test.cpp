#include "runtime/report/changes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/runtime/plan/plan_builder.h"

namespace dc::runtime::plan {
namespace {

using test::tiny_plan;
using Lines = std::vector<std::string>;

TEST(Changes, NothingForTheSamePlan) {
  const Plan plan = tiny_plan();
  EXPECT_EQ(report::changes(plan, plan),
            Lines{"nothing changed: the same instructions at the same addresses"});
}

TEST(Changes, FiguresAloneChangeNothing) {
  const Plan before = tiny_plan();
  Plan after = before;
  after.prediction.step_ns = 2 * before.prediction.step_ns + 2'000'000;
  const Lines lines = report::changes(before, after);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(lines[0].starts_with("nothing changed"));
  EXPECT_TRUE(lines[1].starts_with("predicted step: ")) << lines[1];
}

TEST(Changes, EvaluationsThatComeAndGo) {
  const Plan with = test::evaluating_plan(), without = tiny_plan();
  const auto has = [](const Lines& lines, const std::string& line) {
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  };
  EXPECT_TRUE(has(report::changes(without, with), "evaluation: in the plan now"));
  EXPECT_TRUE(has(report::changes(with, without), "evaluation: no longer in the plan"));
  Plan slower = with;
  slower.variants[0].prediction.step_ns *= 2;
  EXPECT_TRUE(has(report::changes(with, slower),
                  "predicted evaluation: 400.00 us becomes 800.00 us (+100.0 %)"));
}

TEST(Changes, AnotherAddressIsNotNothing) {
  const Plan before = tiny_plan();
  Plan after = before;
  after.slices[0].offset += 64;
  EXPECT_EQ(report::changes(before, after),
            Lines{"layout: the same collectives; other addresses, or kernels in another order"});
}

TEST(Changes, AnotherTrainingConfigurationIsNotNothing) {
  const Plan before = tiny_plan();
  Plan after = before;
  after.optimizer.clip_norm += 1;
  const Lines lines = report::changes(before, after);
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines[0], "optimizer: another training configuration");
}

TEST(Changes, CollectivesThatAreGone) {
  const Plan before = tiny_plan();
  Plan after = before;
  int64_t gathers = 0;
  for (Program& program : after.programs) {
    for (Instruction& in : program.instructions) {
      if (in.kind != InstructionKind::Collective) continue;
      if (in.collective != CollectiveKind::AllGather) continue;
      gathers += static_cast<int64_t>(in.buffers.size());
      in.buffers.clear();
    }
  }
  ASSERT_GT(gathers, 0);
  const std::string expected =
      "gathers: " + std::to_string(gathers) + (gathers == 1 ? " gather" : " gathers") + " fewer";
  EXPECT_EQ(report::changes(before, after), Lines{expected});
}

TEST(Changes, ChosenPassesAreComparedByName) {
  Plan before = tiny_plan(), after = before;
  before.passes = "a,b=2,c";
  after.passes = "a,b=8,d";
  after.slices[0].offset += 64;
  before.options = "world=2 threads=1";
  after.options = "world=2 threads=4 memory=5";
  EXPECT_EQ(report::changes(before, after),
            (Lines{"options: threads=4 instead of threads=1, with memory=5",
                   "chain: without c, b=8 instead of b=2, with d",
                   "layout: the same collectives; other addresses, or kernels in another order"}));
}

}  // namespace
}  // namespace dc::runtime::plan
