// Drives the fuzz target over mutations of the archives in tests/data from fixed seeds.
#include <gtest/gtest.h>

#include "src/base/archive/zip.h"
#include "src/base/file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutation.h"

namespace dc::fuzz {
namespace {

constexpr uint32_t kRounds = 1000;

std::string archive(const std::string& name) {
  return std::string(DC_SOURCE_DIR) + "/tests/data/" + name;
}

// The documents of an archive as the target reads them.
std::string documents(const std::string& name) {
  const auto zip = base::archive::ZipArchive::open(archive(name));
  EXPECT_TRUE(zip.ok()) << zip.status().to_string();
  std::string text;
  for (const char* document :
       {"models/model.json", "extra/dcc.json", "data/weights/model_weights_config.json",
        "data/constants/model_constants_config.json"}) {
    const base::archive::ZipEntry* entry = zip->find(document);
    if (entry != nullptr) {
      const auto bytes = zip->read(*entry);
      text.append(bytes->begin(), bytes->end());
    }
    text += '\x1e';
  }
  return text;
}

void mutate_documents(const std::string& good) {
  run_target(good);
  for (uint32_t seed = 0; seed < kRounds; ++seed) {
    std::mt19937 random(seed);
    std::string text = good;
    mutate_text(text, random);
    SCOPED_TRACE(seed);
    run_target(text);
  }
}

TEST(ArchiveFuzz, MutatedFilesNeverCrash) {
  const auto good = base::read_file(archive("mlp.pt2"));
  ASSERT_TRUE(good.ok()) << good.status().to_string();
  for (uint32_t seed = 0; seed < kRounds; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> bytes(good->begin(), good->end());
    mutate_bytes(bytes, random);
    SCOPED_TRACE(seed);
    run_target(bytes);
  }
}

TEST(ArchiveFuzz, MutatedDocumentsNeverCrash) { mutate_documents(documents("mlp.pt2")); }

TEST(ArchiveFuzz, MutatedOfficialDocumentsNeverCrash) {
  mutate_documents(documents("official_joint.pt2"));
}

}  // namespace
}  // namespace dc::fuzz
