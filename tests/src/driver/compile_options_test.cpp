// The table of options: every row reads what it prints, reaches its member, and is part of the
// cache key.
#include "src/driver/compile_options.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace dc::driver {
namespace {

// A value other than the default for each flag.
const std::map<std::string_view, std::string> kOthers = {
    {"--world", "3"},          {"--grad-accum", "4"},
    {"--threads", "2"},        {"--chain", "zero2"},
    {"--passes", "a,b=64MiB"}, {"--search-effort", "7"},
    {"--memory", "1MiB"},      {"--reduction-order", "per-step"},
    {"--host-memory", "2MiB"}, {"--reduce-dtype", "bfloat16"},
    {"--disk-memory", "3MiB"}, {"--offload-space", "disk"},
    {"--recompute", "full"},   {"--ranks-per-host", "2"},
    {"--start-from", "8.dcp"}, {"--fusion-estimator", "fitted"},
    {"--providers", "any"},    {"--device", "cuda"},
};

TEST(CompileOptions, EveryRowReadsWhatItPrints) {
  std::set<std::string> keys{CompileOptions().canonical()};
  for (const CompileOption& option : compile_options()) {
    SCOPED_TRACE(option.flag);
    const auto other = kOthers.find(option.flag);
    ASSERT_NE(other, kOthers.end()) << "give the new option a value here";
    CompileOptions options, again;
    ASSERT_TRUE(option.read(other->second, options).ok());
    ASSERT_TRUE(option.read(option.print(options), again).ok());
    EXPECT_EQ(again.canonical(), options.canonical());
    EXPECT_TRUE(keys.insert(options.canonical()).second) << "not in the cache key";
    for (const std::string& choice : option.choices)
      EXPECT_TRUE(option.read(choice, again).ok()) << choice;
  }
  EXPECT_EQ(keys.size(), kOthers.size() + 1);
}

TEST(CompileOptions, RefusesWhatIsNoValue) {
  for (const CompileOption& option : compile_options()) {
    if (option.flag == "--chain" || option.flag == "--passes") continue;  // any text; checked later
    if (option.flag == "--start-from") continue;                          // likewise
    if (option.flag == "--fusion-estimator") continue;                    // likewise
    for (const char* text : {"", "lots", "1.5x", "by-stage", "nan"}) {
      CompileOptions options;
      const base::Status status = option.read(text, options);
      EXPECT_EQ(status.code(), "DC2812") << option.flag << " " << text;
      EXPECT_EQ(status.sentence().find(option.flag), 0u) << status.sentence();
    }
  }
}

TEST(CompileOptions, SaysThemInOneLine) {
  CompileOptions options;
  options.world = 2;
  options.passes.budgets[ir::Space::Device] = base::Bytes{4096};
  EXPECT_EQ(options.canonical(),
            "world=2 grad-accum=1 threads=1 chain=auto reduction-order=by-stage "
            "memory=4096 recompute=auto providers=native device=cpu");
}

// As many as the verifier of plans takes.
TEST(CompileOptions, CountsHaveTheirLimits) {
  CompileOptions options;
  options.world = options.accumulation = 65536;
  EXPECT_TRUE(check(options).ok());
  for (int CompileOptions::*count : {&CompileOptions::world, &CompileOptions::accumulation}) {
    for (const int beyond : {0, 65537}) {
      CompileOptions bad;
      bad.*count = beyond;
      EXPECT_EQ(check(bad).code(), "DC2801") << beyond;
    }
  }
}

// Where the plan lay is not part of the cache key.
TEST(CompileOptions, ThePlanToStartFromCountsByItsDigest) {
  CompileOptions options;
  options.start_from = {"8.dcp", "abc", "zero0", {}};
  EXPECT_NE(options.canonical().find(" start-from=abc "), std::string::npos);
  EXPECT_TRUE(check(options).ok());
  options.chain = "zero2";
  EXPECT_EQ(check(options).code(), "DC2801");
  options.chain = "auto";
  options.own_passes = "layout-arenas";
  EXPECT_EQ(check(options).code(), "DC2801");
}

TEST(CompileOptions, AnEstimatorOfFusedKernelsCountsByItsDigest) {
  CompileOptions options;
  options.fused_estimate = {"weights.safetensors", "abc", nullptr};
  EXPECT_NE(options.canonical().find(" fusion-estimator=abc "), std::string::npos);
  options.fused_estimate = {std::string(kFitted), "", nullptr};
  EXPECT_NE(options.canonical().find(" fusion-estimator=fitted "), std::string::npos);
}

}  // namespace
}  // namespace dc::driver
