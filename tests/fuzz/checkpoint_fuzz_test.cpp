// Drives the fuzz target over mutated bodies of an index and a manifest, and over whole files, from
// fixed seeds.
#include <gtest/gtest.h>

#include "runtime/checkpoint/index.h"
#include "runtime/checkpoint/sealed_json.h"
#include "tests/fuzz/mutation_runs.h"

namespace dc::runtime {
namespace {

constexpr uint32_t kRounds = 3000;
constexpr const char* kIndex =
    R"({"step":120,"samples":960,"epoch":2,"samples_in_epoch":60,"seed":"18446744073709551615",
"optimizer":"adamw","model":"abc","model_parts":["d","e","f"],"plan":"feed","world":2,
"configuration":{"lr":0.1,"groups":[{"match":"*","lr":1e-3}],"schedule":null},
"ranks":[{"file":"rank-0-of-2.json","sha256":"12"},{"file":"rank-1-of-2.json","sha256":"34"}]})";
// Of the file that the target has in its folder; the checksums are those of zeros.
constexpr const char* kManifest =
    R"({"files":[{"file":"data.safetensors","bytes":267,"header_bytes":123,
"header_sha256":"e474080112ac0ebb432888e7564c44b71591970cd7fab54b4cf0f3394145ad69"}],
"pieces":[{"file":"data.safetensors","tensor":"a","at":0,"kind":"parameter","of":"w","dtype":"f32","shape":[4,8],
"first":0,"count":20,"xxh64":"ee6d208b78ba5eaa"},
{"file":"data.safetensors","tensor":"a","at":20,"kind":"parameter","of":"w","dtype":"f32","shape":[4,8],
"first":20,"count":12,"sha256":"17b0761f87b081d5cf10757ccc89f12be355c70e2e29df288b65b30710dcbcd1"},
{"file":"data.safetensors","tensor":"b","at":0,"kind":"buffer","of":"c","rank":0,"dtype":"u8","shape":[16],
"first":0,"count":16,"sha256":"374708fff7719dd5979ec875d56cd2286f6d3cf7ec317a3b25632aab28ec37bb"}]})";

// Else the mutations would not get far.
TEST(CheckpointFuzz, TheSeedsAreGood) {
  EXPECT_TRUE(
      checkpoint::read_index(checkpoint::seal({"dcc-checkpoint", 1}, kIndex), "index").ok());
  EXPECT_TRUE(
      checkpoint::read_manifest(checkpoint::seal({"dcc-checkpoint-rank", 1}, kManifest), "manifest")
          .ok());
}

TEST(CheckpointFuzz, MutatedIndexesNeverCrash) { fuzz::run_text_mutations(kIndex, kRounds); }

TEST(CheckpointFuzz, MutatedManifestsNeverCrash) { fuzz::run_text_mutations(kManifest, kRounds); }

TEST(CheckpointFuzz, MutatedFilesNeverCrash) {
  fuzz::run_byte_mutations(checkpoint::seal({"dcc-checkpoint", 1}, kIndex), kRounds);
  fuzz::run_byte_mutations(checkpoint::seal({"dcc-checkpoint-rank", 1}, kManifest), kRounds);
}

}  // namespace
}  // namespace dc::runtime
