#include "src/driver/least_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/cost/costs.h"
#include "src/driver/compile_step.h"
#include "src/frontend/import.h"

namespace dc::driver {
namespace {

using base::Result;
using base::Status;
using runtime::plan::Plan;

TEST(LeastBudget, FindsTheEdge) {
  for (const int64_t edge : {101, 5'000, 70'000, 1'000'000}) {
    for (const int64_t guess : {101, 4'900, 69'999, 80'000, 900'000, 3'000'000}) {
      int tries = 0;
      const auto found = least_budget(100, guess, [&](int64_t budget) {
        ++tries;
        return budget >= edge;
      });
      if (guess * 8 < edge) continue;  // it may give up
      ASSERT_TRUE(found) << edge << " " << guess;
      EXPECT_GE(*found, edge);
      EXPECT_LE(*found - edge, *found / kLeastBudgetParts + 1);
      EXPECT_LE(tries, 24) << edge << " " << guess;
    }
  }
}

TEST(LeastBudget, TwoTriesIfTheGuessIsRight) {
  int tries = 0;
  const auto found = least_budget(1, 6400, [&](int64_t budget) {
    ++tries;
    return budget >= 6400;
  });
  EXPECT_EQ(found, 6400);
  EXPECT_EQ(tries, 2);
}

TEST(LeastBudget, GivesUp) {
  EXPECT_EQ(least_budget(1, 6400, [](int64_t) { return false; }), std::nullopt);
}

struct Case {
  std::string model;
  int world = 1, accumulation = 1;
  std::string chain = "auto";
  std::optional<ir::Space> offload = std::nullopt;
};

Result<Plan> compiled(const Case& one, std::optional<int64_t> memory) {
  Result<ir::Step> step =
      frontend::import_archive(std::string(DC_SOURCE_DIR) + "/tests/data/" + one.model);
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  CompileOptions options;
  options.world = one.world;
  options.accumulation = one.accumulation;
  options.chain = one.chain;
  options.passes.offload_space = one.offload;
  if (memory) options.passes.budgets[ir::Space::Device] = base::Bytes{*memory};
  const cost::Costs costs(std::nullopt, 1);
  return compile_step(std::move(*step), options, costs.model());
}

int64_t named_budget(const Status& status) {
  const std::string& text = status.sentence();
  const size_t at = text.find("--memory ");
  return at == std::string::npos ? 0 : std::stoll(text.substr(at + 9));
}

void verify(const Case& one) {
  SCOPED_TRACE(one.model + " " + one.chain + " world " + std::to_string(one.world) +
               (one.offload ? " offloading" : ""));
  const Result<Plan> whole = compiled(one, std::nullopt);
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  for (const int64_t given : {int64_t{1}, whole->prediction.live_bytes / 3}) {
    const Result<Plan> refused = compiled(one, given);
    if (refused.ok()) continue;
    ASSERT_EQ(refused.status().code(), "DC7010") << refused.status().to_string();
    const int64_t least = named_budget(refused.status());
    ASSERT_GT(least, given) << refused.status().to_string();
    const Result<Plan> fits = compiled(one, least);
    EXPECT_TRUE(fits.ok()) << least << ": " << fits.status().to_string();
    const Result<Plan> below = compiled(one, least - least / kLeastBudgetParts - 1);
    ASSERT_FALSE(below.ok()) << least;
    EXPECT_EQ(below.status().kind(), base::ErrorKind::OutOfMemory);
  }
}

TEST(LeastBudget, WhatTheErrorNamesCompilesAndLessDoesNot) {
  for (const char* model : {"mlp.pt2", "official_joint.pt2"}) {
    verify({model, 1});
    verify({model, 2});
    verify({model, 3, 2});
    verify({model, 2, 1, "zero3"});
    verify({model, 2, 3, "fsdp"});
    verify({model, 2, 1, "auto", ir::Space::Host});
    verify({model, 3, 2, "auto", ir::Space::Disk});
  }
}

}  // namespace
}  // namespace dc::driver
