// Drives the fuzz target over mutated headers and files from fixed seeds.
#include <gtest/gtest.h>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutation.h"

namespace dc::fuzz {
namespace {

constexpr uint32_t kRounds = 10000;
constexpr const char* kHeader = R"({
"__metadata__":{"format":"pt","step":"20"},
"layer.0.weight":{"dtype":"F32","shape":[4,8],"data_offsets":[0,128]},
"layer.0.bias":{"dtype":"BF16","shape":[8],"data_offsets":[128,144]},
"count":{"dtype":"I64","shape":[],"data_offsets":[144,152]},
"mask":{"dtype":"BOOL","shape":[104],"data_offsets":[152,256]}
})";

TEST(SafetensorsFuzz, MutatedHeadersNeverCrash) {
  run_target(kHeader);
  for (uint32_t seed = 0; seed < kRounds; ++seed) {
    std::mt19937 random(seed);
    std::string text = kHeader;
    mutate_text(text, random);
    SCOPED_TRACE(seed);
    run_target(text);
  }
}

TEST(SafetensorsFuzz, MutatedFilesNeverCrash) {
  const std::string header = kHeader;
  std::vector<uint8_t> good = {static_cast<uint8_t>(header.size() & 255),
                               static_cast<uint8_t>(header.size() >> 8),
                               0,
                               0,
                               0,
                               0,
                               0,
                               0};
  good.insert(good.end(), header.begin(), header.end());
  good.resize(good.size() + 256);
  for (uint32_t seed = 0; seed < kRounds; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> bytes = good;
    mutate_bytes(bytes, random);
    SCOPED_TRACE(seed);
    run_target(bytes);
  }
}

}  // namespace
}  // namespace dc::fuzz
