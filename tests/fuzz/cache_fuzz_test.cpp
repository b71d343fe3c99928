// Drives the fuzz target over mutations of a good plan and of a good entry from fixed seeds.
#include <gtest/gtest.h>

#include "runtime/plan/file.h"
#include "src/base/sha256.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutation.h"
#include "tests/runtime/plan/plan_builder.h"

namespace dc::cache {
namespace {

constexpr uint32_t kRounds = 200;

void run_mutations(const std::string& good) {
  fuzz::run_target(good);
  for (uint32_t seed = 0; seed < kRounds; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> bytes(good.begin(), good.end());
    fuzz::mutate_bytes(bytes, random);
    SCOPED_TRACE(seed);
    fuzz::run_target(bytes);
  }
}

TEST(CacheFuzz, MutatedPlansNeverCrash) {
  run_mutations(
      runtime::plan::encode(runtime::plan::test::tiny_plan()).substr(runtime::plan::kHeaderBytes));
}

TEST(CacheFuzz, MutatedEntriesNeverCrash) {
  const std::string key = base::sha256_hex("key");
  run_mutations(key + " " + key + "\n" + runtime::plan::encode(runtime::plan::test::tiny_plan()));
}

}  // namespace
}  // namespace dc::cache
