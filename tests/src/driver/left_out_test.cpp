// A schedule in which a pass or the verifier finds a bug of ours costs the search that schedule,
// not the plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/cost/costs.h"
#include "src/driver/compile_step.h"
#include "src/frontend/import.h"
#include "src/passes/pass_manager.h"
#include "tests/source_dir.h"

namespace dc::driver {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;
using runtime::plan::Plan;
using testing::HasSubstr;
using testing::StartsWith;

using AfterPass = std::function<Status(const passes::Pass&, ir::Step&)>;

Result<Plan> compiled(const AfterPass& after_pass, int accumulation = 1) {
  Result<ir::Step> step =
      frontend::import_archive(std::string(dc::kSourceDir) + "/tests/data/mlp.pt2");
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  CompileOptions options;
  options.world = 3;
  options.accumulation = accumulation;
  options.passes.after_pass = after_pass;
  const cost::Costs costs(std::nullopt, 1);
  return compile_step(std::move(*step), options, costs.model());
}

std::vector<std::string> left_out(const Plan& plan) {
  std::vector<std::string> notes;
  for (const std::string& note : plan.notes) {
    if (note.starts_with(kLeftOut)) notes.push_back(note);
  }
  return notes;
}

Status planted(ErrorKind kind = ErrorKind::Internal) {
  return Status(kind, "DC2999", "a planted failure");
}

TEST(LeftOut, NothingWithoutAFault) {
  for (const int accumulation : {1, 3}) {
    const Result<Plan> plan = compiled({}, accumulation);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    EXPECT_THAT(left_out(*plan), testing::IsEmpty());
    EXPECT_EQ(plan->remarks[0].code, "chain-chosen");
    EXPECT_EQ(plan->remarks[0].number("left_out"), 0);
  }
}

TEST(LeftOut, OneScheduleWhosePassFails) {
  int calls = 0;
  const Result<Plan> plan = compiled([&](const passes::Pass& pass, ir::Step&) {
    return pass.name == "gather-by-block" && ++calls == 1 ? planted() : Status();
  });
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  ASSERT_EQ(left_out(*plan).size(), 1u);
  EXPECT_THAT(left_out(*plan)[0], HasSubstr("gather-by-block"));
  EXPECT_THAT(left_out(*plan)[0], HasSubstr("DC2999 a planted failure"));
  EXPECT_EQ(plan->remarks[0].number("left_out"), 1);
}

// The first kernel goes before what it reads.
void break_order(ir::Graph& graph) {
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    if (graph.node(id).kind != ir::OpKind::Aten) continue;
    return graph.move_before(id, graph.first());
  }
}

TEST(LeftOut, WhatTheVerifierRefuses) {
  const Result<Plan> plan = compiled([&](const passes::Pass& pass, ir::Step& step) {
    if (pass.name == "overlap-reductions") break_order(step.programs.back().graph);
    return Status();
  });
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  ASSERT_GE(left_out(*plan).size(), 1u);
  for (const std::string& note : left_out(*plan)) {
    EXPECT_THAT(note, HasSubstr("overlap-reductions"));
    EXPECT_THAT(note, HasSubstr("DC2102"));
  }
}

TEST(LeftOut, WhatFailsAfterTheSearch) {
  std::string before, chain;
  const Result<Plan> plan = compiled([&](const passes::Pass& pass, ir::Step&) {
    before = pass.name == "normalize-graph" ? "" : before + "," + std::string(pass.name);
    if (pass.name != "layout-arenas") return Status();
    if (chain.empty()) chain = before;
    return before == chain ? planted() : Status();
  });
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  ASSERT_GE(left_out(*plan).size(), 1u);
  EXPECT_THAT(left_out(*plan)[0], StartsWith(kLeftOut));
  EXPECT_THAT(left_out(*plan)[0], HasSubstr("DC2999"));
}

TEST(LeftOut, NoScheduleIsLeft) {
  const Result<Plan> plan = compiled([](const passes::Pass& pass, ir::Step&) {
    return pass.name == "add-update" ? planted() : Status();
  });
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().kind(), ErrorKind::Internal);
  EXPECT_EQ(plan.status().code(), "DC2999");
  ASSERT_FALSE(plan.status().context().empty());
  EXPECT_THAT(plan.status().context()[0], HasSubstr("in chain normalize-graph"));
}

TEST(LeftOut, WhatIsNoBugOfOursEndsTheSearch) {
  const Result<Plan> plan = compiled([](const passes::Pass& pass, ir::Step&) {
    return pass.name == "gather-by-block" ? planted(ErrorKind::Unsupported) : Status();
  });
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().kind(), ErrorKind::Unsupported);
}

}  // namespace
}  // namespace dc::driver
