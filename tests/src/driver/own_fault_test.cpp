// What the plan's verifier finds in a plan that was just made is a bug of ours, found in a file it
// is the file's fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/plan/file.h"
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

// A plan whose transient values all have the same place if `damaged`.
Result<Plan> compiled(bool damaged) {
  Result<ir::Step> step =
      frontend::import_archive(std::string(dc::kSourceDir) + "/tests/data/mlp.pt2");
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  CompileOptions options;
  options.chain = "zero0";
  options.passes.after_pass = [&](const passes::Pass& pass, ir::Step& changed) {
    if (!damaged || pass.name != "layout-arenas") return Status();
    ir::Graph& graph = changed.programs[0].graph;
    for (const ir::NodeId id : graph.order()) {
      for (const ir::ValueId result : graph.node(id).results) {
        if (result.valid() && graph.storage(result).location.offset > 0)
          graph.edit_location(result).offset = 0;
      }
    }
    return Status();
  };
  const cost::Costs costs(std::nullopt, 1);
  return compile_step(std::move(*step), options, costs.model());
}

TEST(OwnFault, APlanThatDoesNotPassItsOwnVerification) {
  ASSERT_TRUE(compiled(false).ok());
  const Status found = compiled(true).status();
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.kind(), ErrorKind::Internal) << found.to_string();
  EXPECT_THAT(found.code(), testing::StartsWith("DC32")) << found.to_string();
  EXPECT_THAT(found.to_string(), testing::HasSubstr("its own verification"));
}

TEST(OwnFault, WhatIsFoundInAFileKeepsItsCodeAndSentence) {
  Result<Plan> plan = compiled(false);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  plan->tensors[0].slice = 1 << 20;
  const std::string file = runtime::plan::encode(*plan);
  const Status found =
      runtime::plan::decode({reinterpret_cast<const uint8_t*>(file.data()), file.size()}).status();
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.kind(), ErrorKind::BadInput);
  const Status ours = own_fault(found);
  EXPECT_EQ(ours.kind(), ErrorKind::Internal);
  EXPECT_EQ(ours.code(), found.code());
  EXPECT_EQ(ours.sentence(), found.sentence());
}

}  // namespace
}  // namespace dc::driver
