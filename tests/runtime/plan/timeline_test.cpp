#include "runtime/plan/timeline.h"

#include <gtest/gtest.h>

#include "runtime/plan/file.h"
#include "runtime/verify/verify.h"
#include "tests/runtime/plan/plan_builder.h"

namespace dc::runtime::plan {
namespace {

constexpr int64_t kUnit = test::kTinyDuration;

// Compute does not wait for the reduction; those behind this wait move forward by one.
void take_out_wait(Program& program) {
  program.instructions.erase(program.instructions.begin() + test::kWaitReduced);
  program.duration_ns.erase(program.duration_ns.begin() + test::kWaitReduced);
}

TEST(Timeline, StreamsRunSideBySideUntilAWait) {
  Plan plan = test::tiny_plan();
  Program& program = plan.programs[0];
  program.duration_ns[test::kReduce] = 7 * kUnit;
  // Compute asks for the reduction's result just before it ends the step.
  const Instruction wait = program.instructions[test::kWaitReduced];
  take_out_wait(program);
  program.instructions.push_back(wait);
  program.duration_ns.push_back(0);
  ASSERT_TRUE(has_timeline(plan));
  const ProgramTimeline line = predicted_timeline(plan, program);

  EXPECT_EQ(line.begin_ns[test::kGather], 0);
  EXPECT_EQ(line.end_ns[test::kGather], kUnit);
  EXPECT_EQ(line.begin_ns[test::kAddLoss], 4 * kUnit);
  EXPECT_EQ(line.end_ns[test::kWaitReduce], 5 * kUnit);  // on its own stream since the beginning
  EXPECT_EQ(line.begin_ns[test::kWaitReduce], 0);
  EXPECT_EQ(line.begin_ns[test::kReduce], 5 * kUnit);
  EXPECT_EQ(line.end_ns[test::kReduce], 12 * kUnit);
  EXPECT_EQ(line.begin_ns[test::kSquareSum - 1], 5 * kUnit);
  // Compute is done after four more, and stands for what is left of the reduction.
  EXPECT_EQ(line.begin_ns.back(), 9 * kUnit);
  EXPECT_EQ(line.end_ns.back(), 12 * kUnit);
  EXPECT_EQ(line.time_ns, 12 * kUnit);
  EXPECT_EQ(line.exposed_ns, (3 + 2) * kUnit);  // that, and two collectives on the compute stream
  EXPECT_EQ(line.collective_ns, (7 + 2) * kUnit);
}

TEST(Timeline, AProgramEndsWhenAllStreamsHaveEnded) {
  Plan plan = test::tiny_plan();
  take_out_wait(plan.programs[0]);
  plan.programs[0].duration_ns[test::kReduce] = 20 * kUnit;
  EXPECT_EQ(predicted_timeline(plan, plan.programs[0]).time_ns, 25 * kUnit);
}

// Files of schema version 1.0 know no durations.
TEST(Timeline, APlanWithoutDurationsLoadsAndHasNone) {
  Plan plan = test::tiny_plan();
  plan.programs[0].duration_ns.clear();
  EXPECT_TRUE(verify::verify_meaning(plan).ok());
  const std::string file = encode(plan);
  auto decoded = decode({reinterpret_cast<const uint8_t*>(file.data()), file.size()});
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_FALSE(has_timeline(*decoded));
}

}  // namespace
}  // namespace dc::runtime::plan
