// Runs every golden file below this folder. DC_UPDATE_GOLDENS=1 rewrites the files instead
// (scripts/update_goldens.py).
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "src/cost/fixed.h"
#include "tests/passes/golden_file.h"
#include "tests/source_dir.h"

namespace dc::passes {
namespace {

std::filesystem::path golden_folder() {
  return std::filesystem::path(dc::kSourceDir) / "tests" / "passes";
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// What running a file's passes on its step gave, in the file's own terms.
struct Outcome {
  base::Status error;
  Change change = Change::No;
  ir::Step step;
  std::vector<std::string> remarks;
};

Outcome run(const GoldenFile& file, ir::Step step, std::span<const PassCall> passes) {
  Outcome outcome;
  base::Result<cost::FixedCost> cost = cost::parse_fixed_cost(file.cost);
  if (!cost.ok()) {
    outcome.error = cost.status();
    return outcome;
  }
  std::vector<Remark> remarks;
  PassContext context{*cost, file.options, remarks};
  base::Result<Change> change = run_passes(step, passes, context);
  if (change.ok()) {
    outcome.change = *change;
  } else {
    outcome.error = change.status();
  }
  for (const Remark& remark : remarks) outcome.remarks.push_back(describe_facts(remark));
  outcome.step = std::move(step);
  return outcome;
}

// The file as this build would write it.
GoldenFile observed(GoldenFile file, const Outcome& outcome) {
  file.remarks = outcome.remarks;
  file.error_code.clear();
  file.output.clear();
  if (!outcome.error.ok()) {
    file.expectation = Expectation::Error;
    file.error_code = outcome.error.code();
  } else if (outcome.change == Change::No) {
    file.expectation = Expectation::Unchanged;
  } else {
    file.expectation = Expectation::Changed;
    const std::string text = ir::print(outcome.step);
    file.output = file.shows_state ? text : without_state(text);
  }
  return file;
}

// More nodes hide the point of a test.
constexpr size_t kMostNodes = 13;

// Of the largest program of an input. Inputs and reads of state do no work, and a collective or
// copy is one with its done and its release.
size_t count_nodes(const ir::Step& step) {
  size_t most = 0;
  for (const ir::Program& program : step.programs) {
    size_t nodes = 0;
    for (ir::NodeId id = program.graph.first(); id.valid(); id = program.graph.next(id)) {
      const ir::Node& node = program.graph.node(id);
      const bool counts = node.kind != ir::OpKind::Input && node.kind != ir::OpKind::State &&
                          node.kind != ir::OpKind::Release && !ir::is_done(node.kind);
      nodes += counts ? 1 : 0;
    }
    most = std::max(most, nodes);
  }
  return most;
}

// "line 12 is '...' and should be '...'", or nothing.
std::string first_difference(const std::string& actual, const std::string& expected) {
  std::istringstream a(actual), b(expected);
  for (int line = 1;; ++line) {
    std::string have, want;
    const bool more_a = static_cast<bool>(std::getline(a, have)),
               more_b = static_cast<bool>(std::getline(b, want));
    if (!more_a && !more_b) return "";
    if (more_a && more_b && have == want) continue;
    return "line " + std::to_string(line) + " is\n  " + (more_a ? have : "<the end>") +
           "\nand should be\n  " + (more_b ? want : "<the end>");
  }
}

void expect_unchanged(const std::string& before, const Outcome& outcome, const char* what) {
  EXPECT_EQ(outcome.error.to_string(), "") << what;
  EXPECT_EQ(outcome.change, Change::No) << what;
  EXPECT_EQ(ir::print(outcome.step), before) << what;
}

class GoldenTest : public ::testing::Test {
 public:
  explicit GoldenTest(std::filesystem::path path) : path_(std::move(path)) {}

  void TestBody() override {
    base::Result<GoldenFile> file = parse_golden(read_text(path_));
    ASSERT_TRUE(file.ok()) << path_ << ": " << file.status().to_string();
    base::Result<ir::Step> step = ir::parse(file->input);
    ASSERT_TRUE(step.ok()) << path_ << ": " << step.status().to_string();
    EXPECT_LE(count_nodes(*step), kMostNodes) << path_ << ": make the input smaller";
    base::Result<Chain> passes = parse_passes(file->passes);
    ASSERT_TRUE(passes.ok()) << path_ << ": " << passes.status().to_string();
    const std::string before = ir::print(*step);
    const ir::Stage stage = step->stage;
    const Outcome outcome = run(*file, std::move(*step), *passes);
    const GoldenFile now = observed(*file, outcome);
    if (std::getenv("DC_UPDATE_GOLDENS") != nullptr) {
      std::ofstream(path_, std::ios::binary) << print_golden(now);
    } else {
      EXPECT_TRUE(print_golden(now) == print_golden(*file))
          << path_ << ": " << first_difference(print_golden(now), print_golden(*file)) << "\n"
          << outcome.error.to_string();
    }
    if (!outcome.error.ok()) return;
    if (outcome.change == Change::No && outcome.step.stage == stage)
      expect_unchanged(before, outcome, "no change reported");
    check_result(*file, *passes, outcome, stage);
  }

 private:
  // The text of the result reads back, and passes that stay at their stage have nothing left to do.
  void check_result(const GoldenFile& file, std::span<const PassCall> passes,
                    const Outcome& outcome, ir::Stage stage) {
    const std::string text = ir::print(outcome.step);
    base::Result<ir::Step> again = ir::parse(text);
    ASSERT_TRUE(again.ok()) << path_ << ": " << again.status().to_string();
    EXPECT_EQ(ir::print(*again), text);
    for (const PassCall& call : passes) {
      if (call.pass->needs != call.pass->gives || outcome.step.stage != stage) return;
    }
    expect_unchanged(text, run(file, std::move(*again), passes), "second run");
  }

  std::filesystem::path path_;
};

TEST(GoldenFile, PrintsWhatItReads) {
  const std::string text =
      "// RUN: passes=schedule,layout-arenas reduction-order=per-step cost=fixed(mm=2us, "
      "copy=1us) recompute=full memory=3KiB\n"
      "// The point.\n// EXPECT: changed\n// REMARK: kept it\nstep @s stage=imported {\n}\n// "
      "----\nstep @t stage=imported {\n}\n";
  base::Result<GoldenFile> file = parse_golden(text);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(print_golden(*file), text);
  EXPECT_EQ(file->passes, "schedule,layout-arenas");
  EXPECT_EQ(file->options.reduction_order, ReductionOrder::PerStep);
  EXPECT_EQ(file->options.memory()->v, 3072);
  EXPECT_EQ(file->options.recompute, Recompute::Full);
  EXPECT_EQ(file->cost, "fixed(mm=2us, copy=1us)");
}

TEST(GoldenFile, HidesState) {
  const auto file =
      parse_golden("// RUN: passes=schedule state=hidden\n// EXPECT: changed\nstep @s {\n}\n");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_FALSE(file->shows_state);
  EXPECT_EQ(without_state("step @s {\n  state \"w\" : f32[8]\n  program @p {\n"
                          "    %w = state(entry=\"w\") : f32[8]\n    zero %w\n  }\n}\n"),
            "step @s {\n  program @p {\n    zero %w\n  }\n}\n");
}

TEST(GoldenFile, RefusesUnknownWords) {
  EXPECT_FALSE(parse_golden("// RUN: passes=schedule speed=9\n// EXPECT: changed\n").ok());
  EXPECT_FALSE(parse_golden("// RUN: passes=schedule state=gone\n// EXPECT: changed\n").ok());
  EXPECT_FALSE(parse_golden("// RUN: memory=1KiB\n// EXPECT: changed\n").ok());
  EXPECT_FALSE(parse_golden("// RUN: passes=schedule\n// EXPECT: different\n").ok());
  EXPECT_FALSE(parse_golden("// RUN: passes=schedule\nstep @s {\n}\n").ok());
}

// "prefetch-gathers/budget.dcir" becomes Goldens.prefetch_gathers__budget.
std::string test_name(const std::filesystem::path& path) {
  std::string name;
  for (char c :
       std::filesystem::relative(path, golden_folder()).replace_extension().generic_string()) {
    name += c == '/' ? "__" : std::string(1, std::isalnum(static_cast<unsigned char>(c)) ? c : '_');
  }
  return name;
}

const bool kRegistered = [] {
  for (const std::filesystem::path& path : golden_files(golden_folder())) {
    ::testing::RegisterTest("Goldens", test_name(path).c_str(), nullptr, nullptr, __FILE__,
                            __LINE__,
                            [path]() -> ::testing::Test* { return new GoldenTest(path); });
  }
  return true;
}();

TEST(GoldenFile, SomeAreThere) {
  EXPECT_TRUE(kRegistered && !golden_files(golden_folder()).empty());
}

}  // namespace
}  // namespace dc::passes
