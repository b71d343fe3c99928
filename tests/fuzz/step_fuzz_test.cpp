// Drives the fuzz target over mutations of the steps in the golden files from fixed seeds.
#include <gtest/gtest.h>

#include "src/base/file.h"
#include "tests/fuzz/mutation_runs.h"
#include "tests/passes/golden_file.h"
#include "tests/src/ir/sample_steps.h"

namespace dc::fuzz {
namespace {

constexpr uint32_t kRounds = 400;  // of each step

std::vector<std::string> good_steps() {
  std::vector<std::string> steps = {ir::kImported, ir::kScheduled};
  for (const auto& path : passes::golden_files(std::string(DC_SOURCE_DIR) + "/tests/passes")) {
    const auto text = base::read_file(path);
    EXPECT_TRUE(text.ok()) << text.status().to_string();
    const auto golden = passes::parse_golden(*text);
    EXPECT_TRUE(golden.ok()) << golden.status().to_string();
    steps.push_back(golden->input);
    if (!golden->output.empty()) steps.push_back(golden->output);
  }
  return steps;
}

TEST(StepFuzz, MutatedTextNeverCrashes) {
  const std::vector<std::string> steps = good_steps();
  EXPECT_GT(steps.size(), 10u);
  for (const std::string& step : steps) run_text_mutations(step, kRounds);
}

}  // namespace
}  // namespace dc::fuzz
