// The bounds of the ways to fuse operators together, against each alone.
#include "src/search/certificate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "src/cost/analytic.h"
#include "src/frontend/import.h"
#include "src/search/moves.h"
#include "tests/source_dir.h"

namespace dc::search {
namespace {

using base::Nanos;

// Those that are not the lowest end early; the lowest stays as it is.
TEST(Certificates, TheLowestIsThatOfEachAlone) {
  auto step =
      frontend::import_archive(std::string(dc::kSourceDir) + "/tests/data/llama_8b_cuda.pt2");
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  step->mesh.axes = {{"dp", 8}};
  const cost::AnalyticCost cost(1);
  passes::Options options;
  options.providers = passes::Providers::Native;
  options.reduction_order = passes::ReductionOrder::PerMicroBatch;
  options.budgets[ir::Space::Device] = base::Bytes{int64_t{20} << 30};
  ScheduledSteps steps(*step, options, cost);
  std::vector<bound::LowerBound> alone;
  for (const size_t fusion : {0u, 1u, 2u}) {
    auto one = certificate(steps, *step, options, cost, fusion);
    ASSERT_TRUE(one.ok()) << one.status().to_string();
    alone.push_back(std::move(*one));
  }
  const auto lower = [](const auto& a, const auto& b) { return a.time < b.time; };
  const Nanos least = std::min_element(alone.begin(), alone.end(), lower)->time;
  Certificates together;
  ASSERT_TRUE(together.find({0, 1, 2}, steps, *step, options, cost).ok());
  EXPECT_EQ(together.least(), least);
  int fewer = 0;
  for (size_t fusion = 0; fusion < alone.size(); ++fusion) {
    const auto found = together.of(fusion);
    ASSERT_TRUE(found);
    EXPECT_GE(found->time, least);
    EXPECT_LE(found->time, alone[fusion].time);
    fewer += found->evaluations < alone[fusion].evaluations ? 1 : 0;
  }
  EXPECT_GT(fewer, 0);
}

}  // namespace
}  // namespace dc::search
