// Drives the fuzz target over mutations of the archives in tests/data from fixed seeds.
#include <gtest/gtest.h>

#include "src/base/archive/zip.h"
#include "src/base/file.h"
#include "tests/fuzz/mutation_runs.h"
#include "tests/source_dir.h"

namespace dc::fuzz {
namespace {

constexpr uint32_t kRounds = 1000;

std::string archive(const std::string& name) {
  return std::string(dc::kSourceDir) + "/tests/data/" + name;
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

TEST(ArchiveFuzz, MutatedFilesNeverCrash) {
  const auto good = base::read_file(archive("mlp.pt2"));
  ASSERT_TRUE(good.ok()) << good.status().to_string();
  run_byte_mutations(*good, kRounds);
}

TEST(ArchiveFuzz, MutatedDocumentsNeverCrash) { run_text_mutations(documents("mlp.pt2"), kRounds); }

TEST(ArchiveFuzz, MutatedOfficialDocumentsNeverCrash) {
  run_text_mutations(documents("official_joint.pt2"), kRounds);
}

}  // namespace
}  // namespace dc::fuzz
