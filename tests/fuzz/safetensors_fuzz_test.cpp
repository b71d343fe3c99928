// Drives the fuzz target over mutated headers and files from fixed seeds.
#include <gtest/gtest.h>

#include "tests/fuzz/mutation_runs.h"

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

TEST(SafetensorsFuzz, MutatedHeadersNeverCrash) { run_text_mutations(kHeader, kRounds); }

TEST(SafetensorsFuzz, MutatedFilesNeverCrash) {
  const std::string header = kHeader;
  std::string good(8, '\0');
  good[0] = static_cast<char>(header.size() & 255);
  good[1] = static_cast<char>(header.size() >> 8);
  run_byte_mutations(good + header + std::string(256, '\0'), kRounds);
}

}  // namespace
}  // namespace dc::fuzz
