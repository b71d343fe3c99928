// Runs a training job whose ranks are threads of this process.
#pragma once

#include <vector>

#include <gtest/gtest.h>

#include "runtime/train/train.h"
#include "runtime/verify/verify.h"
#include "tests/runtime/exec/hand_plan.h"

namespace dc::runtime::test {

struct JobResult {
  std::vector<base::Status> statuses;
  std::vector<train::Outcome> outcomes;
};

// Where the options name neither weights nor a state to resume, parameters are drawn; data is
// synthetic where they name none.
inline JobResult run_job(const plan::Plan& plan, train::TrainOptions options) {
  const int world = plan.world();
  if (options.weights.empty() && options.resume.empty()) options.weights = "init:1";
  if (options.data.empty()) options.data = {"synthetic:2"};
  options.settings.optimizer = plan.optimizer;
  const plan::Loaded loaded{plan, "feed"};
  EXPECT_TRUE(verify::verify_meaning(plan).ok()) << verify::verify_meaning(plan).to_string();
  JobResult result;
  result.statuses.resize(static_cast<size_t>(world));
  result.outcomes.resize(static_cast<size_t>(world));
  on_ranks(world, {}, [&](comm::ProcessGroup& job, int rank) {
    const comm::LaunchInfo launch{comm::Launcher::Single, rank, world, rank, world, "test", {}};
    auto outcome = train::train(loaded, job, launch, options);
    const auto at = static_cast<size_t>(rank);
    if (outcome.ok()) {
      result.outcomes[at] = *outcome;
    } else {
      result.statuses[at] = outcome.status();
      job.leave(outcome.status());
    }
  });
  return result;
}

}  // namespace dc::runtime::test
