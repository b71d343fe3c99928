// Drives the fuzz target without libFuzzer: mutations of a good payload from fixed seeds, so that
// every run does the same.
#include <gtest/gtest.h>

#include "runtime/plan/file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutation.h"
#include "tests/runtime/plan/plan_builder.h"

namespace dc::runtime::plan {
namespace {

constexpr int kRounds = 20000;

std::vector<uint8_t> good_payload() {
  const std::string file = encode(test::tiny_plan());
  return std::vector<uint8_t>(file.begin() + kHeaderBytes, file.end());
}

TEST(PlanFuzz, MutatedPayloadsNeverCrash) {
  const std::vector<uint8_t> good = good_payload();
  for (uint32_t seed = 0; seed < kRounds; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> bytes = good;
    fuzz::mutate_bytes(bytes, random);
    SCOPED_TRACE(seed);
    fuzz::run_target(bytes);
  }
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
