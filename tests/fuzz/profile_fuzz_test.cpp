// Drives the fuzz target over mutations of a good profile from fixed seeds.
#include <gtest/gtest.h>

#include "src/profile/profile_file.h"
#include "tests/fuzz/mutation_runs.h"

namespace dc::fuzz {
namespace {

constexpr uint32_t kRounds = 10000;

std::string good_profile() {
  const base::Timing timing{1500, 1400, 20, 31};
  base::Measurements measurements;
  measurements.machine = {"a processor", "torch 2.11.0", "local", "dcrun -n", 8, 2, 1};
  measurements.model_digest = std::string(64, 'a');
  const auto kernel = [](const char* text, base::Provider provider) {
    return base::KernelSignature::parse(text, provider).value();
  };
  measurements.kernels = {
      {kernel("aten.mm.default f32[4,8](8,1) f32[8,8](8,1) -> f32[4,8](8,1)", base::Provider::Aten),
       timing, 4096},
      {kernel("dc.adamw f32[32](1) f32[32](1) ->", base::Provider::Native), timing, 0}};
  measurements.collectives = {{"all_gather", 2, 1024, timing},
                              {"all_gather", 2, 65536, timing},
                              {"all_reduce", 2, 65536, timing}};
  measurements.copies = {{"device", "host", 65536, timing}};
  return profile::to_json(measurements);
}

TEST(ProfileFuzz, MutatedTextNeverCrashes) {
  const std::string good = good_profile();
  ASSERT_TRUE(profile::parse_profile(good, "prof.json").ok());
  run_text_mutations(good, kRounds);
}

}  // namespace
}  // namespace dc::fuzz
