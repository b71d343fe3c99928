// Drives the fuzz target without libFuzzer: mutations of a good payload from fixed seeds, so that
// every run does the same.
#include <gtest/gtest.h>

#include <random>

#include "runtime/plan/file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutation_runs.h"
#include "tests/runtime/plan/plan_builder.h"

namespace dc::runtime::plan {
namespace {

constexpr uint32_t kRounds = 20000;

TEST(PlanFuzz, MutatedPayloadsNeverCrash) {
  fuzz::run_byte_mutations(encode(test::tiny_plan()).substr(kHeaderBytes), kRounds);
}

TEST(PlanFuzz, NoiseNeverCrashes) {
  std::mt19937 random(7);
  for (size_t size = 0; size < 300; ++size) {
    std::vector<uint8_t> bytes(size);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    fuzz::run_target(bytes);
  }
}

}  // namespace
}  // namespace dc::runtime::plan
