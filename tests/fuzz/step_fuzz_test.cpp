// Drives the fuzz target over mutations of the steps in the golden files from fixed seeds.
#include <gtest/gtest.h>

#include "src/base/file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutation.h"
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
  for (size_t i = 0; i < steps.size(); ++i) {
    for (uint32_t seed = 0; seed < kRounds; ++seed) {
      std::mt19937 random(seed);
      std::string text = steps[i];
      mutate_text(text, random);
      SCOPED_TRACE(std::to_string(i) + ", seed " + std::to_string(seed));
      run_target(text);
    }
  }
}

}  // namespace
}  // namespace dc::fuzz
