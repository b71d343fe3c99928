#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/report/report.h"
#include "tests/runtime/plan/plan_builder.h"

namespace dc::runtime::report {
namespace {

using testing::HasSubstr;
using testing::Not;

// A plan may have a group for each parameter: what counts is which values differ.
TEST(TrainingReport, GroupsWithEqualValuesAreOne) {
  plan::Plan plan = plan::test::tiny_plan();
  plan::OptimizerGroup group;
  group.lr = 0.25;
  plan.optimizer.groups.clear();
  for (const char* match : {"a", "b", "c"}) {
    group.match = match;
    plan.optimizer.groups.push_back(group);
  }
  EXPECT_THAT(training_report(plan), Not(HasSubstr("with other values")));
  plan.optimizer.groups[1].lr = plan.optimizer.groups[2].lr = 0.5;
  EXPECT_THAT(training_report(plan), HasSubstr("lr 0.25, 1 group with other values"));
  plan.optimizer.groups[2].lr = 0.75;
  EXPECT_THAT(training_report(plan), HasSubstr("lr 0.25, 2 groups with other values"));
}

}  // namespace
}  // namespace dc::runtime::report
