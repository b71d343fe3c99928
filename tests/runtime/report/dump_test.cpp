// The dumps: text against a golden file, JSON by its shape, summary and memory report by what they
// must name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <numeric>
#include <sstream>

#include "runtime/plan/plan.h"
#include "runtime/report/memory_report.h"
#include "runtime/report/report.h"
#include "tests/runtime/plan/plan_builder.h"
#include "tests/source_dir.h"

namespace dc::runtime::plan {
namespace {

using testing::HasSubstr;

// Set DC_UPDATE_GOLDEN=1 to rewrite the file, then read the difference.
void expect_golden(const std::string& name, const std::string& actual) {
  const std::string path = std::string(dc::kSourceDir) + "/tests/runtime/report/golden/" + name;
  if (std::getenv("DC_UPDATE_GOLDEN")) std::ofstream(path, std::ios::binary) << actual;
  std::ifstream file(path, std::ios::binary);
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(actual, expected.str()) << "differs from " << path;
}

TEST(Dump, Text) { expect_golden("tiny.txt", report::to_text(test::tiny_plan())); }
TEST(Dump, Summary) { expect_golden("tiny_summary.txt", report::summary(test::tiny_plan())); }
TEST(Dump, Memory) { expect_golden("tiny_memory.txt", report::memory_report(test::tiny_plan())); }
TEST(Dump, TextOfAnEvaluation) {
  expect_golden("evaluating.txt", report::to_text(test::evaluating_plan()));
}
TEST(Dump, SummaryOfAnEvaluation) {
  expect_golden("evaluating_summary.txt", report::summary(test::evaluating_plan()));
}
TEST(Dump, JsonOfAnEvaluation) {
  EXPECT_THAT(report::to_json(test::evaluating_plan()), HasSubstr("\"purpose\": \"evaluate\""));
}
TEST(Dump, Json) { expect_golden("tiny.json", report::to_json(test::tiny_plan())); }

TEST(Dump, TextShowsEveryInstructionOnOneLine) {
  Plan plan = test::tiny_plan();
  plan.programs[0].instructions[test::kMatmul].module = "odd \"name\"\nwith lines";
  const std::string text = report::to_text(plan);
  EXPECT_THAT(text,
              HasSubstr("  [1] %11 = aten.mm.default(self=%9, mat2=%10) provider=aten scratch=14 "
                        "stream=compute phase=forward module=\"odd \\\"name\\\"\\nwith lines\" "
                        "reads=[%9,%10] writes=[%11] @"));
}

TEST(Dump, TheZeroRowOfAnInitializerShows) {
  Plan plan = test::tiny_plan();
  EXPECT_EQ(report::to_text(plan).find("zero_row"), std::string::npos);
  plan.parameters[0].initializer.zero_row = 4;
  EXPECT_THAT(report::to_text(plan), HasSubstr("init=normal(0.0,0.02) zero_row=4"));
  EXPECT_THAT(report::to_json(plan), HasSubstr("\"zero_row\": 4"));
}

// Figures that are of neither compute nor transfers are of kernels on the host.
TEST(TimingReport, SaysWhatTheHostDoes) {
  plan::Prediction p;
  p.step_ns = 22'000'000;
  p.compute_ns = 2'000'000;
  p.communication_ns = 3'000'000;
  p.copy_ns = 500'000;
  p.figures_ns = {0, 0, 5'500'000, 0};
  EXPECT_EQ(report::timing_report(p).find("host"), std::string::npos);
  p.figures_ns[3] = 19'000'000;
  const std::string text = report::timing_report(p);
  EXPECT_NE(text.find("waiting for communication, copies and the host 20.00 ms"), std::string::npos)
      << text;
  EXPECT_NE(text.find("host               19.00 ms of updates"), std::string::npos) << text;
  EXPECT_EQ(text.find("of which compute waits"), std::string::npos) << text;
}

TEST(MemoryReport, ThePeakIsTheMatmulWithItsScratch) {
  const Plan plan = test::tiny_plan();
  const report::Peak peak = report::find_peak(plan, Space::Device);
  EXPECT_EQ(peak.program, 0);
  EXPECT_EQ(peak.index, test::kMatmul);
  int64_t state = 0;
  for (const Slice& slice : plan.slices)
    state += slice.program < 0 ? (slice.bytes + 63) / 64 * 64 : 0;
  EXPECT_EQ(peak.bytes, state + 256 + 128 + 1024);  // w, y, scratch
  EXPECT_EQ(peak.alive.front(), test::kScratchSlice);
  EXPECT_EQ(peak.by_kind[static_cast<size_t>(SliceKind::Gathered)], 256);
  EXPECT_EQ(peak.by_kind[static_cast<size_t>(SliceKind::Activations)], 128);
  EXPECT_EQ(peak.by_kind[static_cast<size_t>(SliceKind::Scratch)], 1024);
  EXPECT_EQ(peak.by_kind[static_cast<size_t>(SliceKind::Parameters)], 128);
  EXPECT_EQ(peak.by_kind[static_cast<size_t>(SliceKind::OptimizerState)], 256);
  EXPECT_EQ(std::accumulate(peak.by_kind.begin(), peak.by_kind.end(), int64_t{0}), peak.bytes);
  EXPECT_THAT(report::memory_report(plan),
              HasSubstr("instruction 1 (aten.mm.default) of program 'step', module net.linear"));
}

}  // namespace
}  // namespace dc::runtime::plan
