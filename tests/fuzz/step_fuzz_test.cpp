// Drives the fuzz target over mutations of the steps in the golden files from fixed seeds.
#include <gtest/gtest.h>

#include "src/base/file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutation_runs.h"
#include "tests/passes/golden_file.h"
#include "tests/source_dir.h"
#include "tests/src/ir/sample_steps.h"

namespace dc::fuzz {
namespace {

constexpr uint32_t kRounds = 400;  // of each step

std::vector<std::string> good_steps() {
  std::vector<std::string> steps = {ir::kImported, ir::kScheduled};
  for (const auto& path : passes::golden_files(std::string(dc::kSourceDir) + "/tests/passes")) {
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

// Steps that ended a pass once, each a mutation.
constexpr const char* kFoundBefore[] = {
    // A slice's backward without an operand.
    R"(step @tiny stage=imported mesh=<dp=2> {
  input "x" : f32[4,8]
  parameter "w" : f32[8,8]
  state "w" : f32[8,8] parameter="w"
  program @micro_batch {
    %x = aten.slice_backward.default(name="x") : f32[4,8]
    %w = state(entry="w") : f32[8,8]
    %h = aten.mm.default(self=%x, mat2=%w) : f32[4,8] in "net"
    %loss = aten.mean.default(self=%h) : f32[]
    %xt = aten.t.default(self=%x) : f32[8,4] strides=(1,8) backward
    %g = aten.mm.default(self=%xt, mat2=%h) : f32[8,8] backward in "net"
    output loss %loss
    output gradient "w" %g
  }
}
)"};

TEST(StepFuzz, WhatWasFoundBeforeIsRefusedInWords) {
  for (const char* text : kFoundBefore) {
    SCOPED_TRACE(text);
    const auto step = ir::parse(text);
    ASSERT_TRUE(step.ok()) << step.status().to_string();
    EXPECT_FALSE(ir::verify(*step, step->stage).ok());
    run_target(std::string_view(text));
  }
}

}  // namespace
}  // namespace dc::fuzz
