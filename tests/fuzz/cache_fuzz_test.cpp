// Drives the fuzz target over mutations of a good plan and of a good entry from fixed seeds.
#include <gtest/gtest.h>

#include "runtime/plan/file.h"
#include "src/base/sha256.h"
#include "tests/fuzz/mutation_runs.h"
#include "tests/runtime/plan/plan_builder.h"

namespace dc::cache {
namespace {

constexpr uint32_t kRounds = 200;

TEST(CacheFuzz, MutatedPlansNeverCrash) {
  const std::string plan = runtime::plan::encode(runtime::plan::test::tiny_plan());
  fuzz::run_byte_mutations(plan.substr(runtime::plan::kHeaderBytes), kRounds);
}

TEST(CacheFuzz, MutatedEntriesNeverCrash) {
  const std::string key = base::sha256_hex("key");
  const std::string plan = runtime::plan::encode(runtime::plan::test::tiny_plan());
  fuzz::run_byte_mutations(key + " " + key + "\n" + plan, kRounds);
}

}  // namespace
}  // namespace dc::cache
