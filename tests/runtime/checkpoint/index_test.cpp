#include "runtime/checkpoint/index.h"

#include <gtest/gtest.h>

#include <functional>

#include "runtime/checkpoint/sealed_json.h"

namespace dc::runtime::test {
namespace {

checkpoint::CheckpointIndex example_index() {
  checkpoint::CheckpointIndex index;
  index.run.step = 120;
  index.run.data = {960, 2, 60};
  index.run.seed = ~uint64_t{0};
  index.run.optimizer = "adamw";
  index.run.model_digest = "abc";
  index.run.step_digest = {"d", "e", "f"};
  index.run.plan_digest = "feed";
  index.run.world = 2;
  index.run.configuration.set("lr", base::JsonValue(0.1));
  index.manifests = {{"rank-0-of-2.json", "12"}, {"rank-1-of-2.json", "34"}};
  return index;
}

checkpoint::RankManifest example_manifest() {
  checkpoint::RankManifest manifest;
  manifest.files = {
      {"rank-0-of-2.safetensors", 1000, 96, checkpoint::Checksum(0xFEDCBA9876543210)}};
  checkpoint::Piece piece;
  piece.value = {checkpoint::ValueKind::Moment1, "model.w \"quoted\"", -1};
  piece.dtype = base::DType::F32;
  piece.sizes = {7, 10};
  piece.first = 64;
  piece.count = 6;
  piece.file = "rank-0-of-2.safetensors";
  piece.tensor = "exp_avg/model.w";
  piece.checksum = checkpoint::Checksum(0x0123456789ABCDEF);
  manifest.pieces = {piece};
  piece.value = {checkpoint::ValueKind::Buffer, "scalar", 1};
  piece.dtype = base::DType::I64;
  piece.sizes = {};
  piece.first = 0;
  piece.count = 1;
  piece.checksum =
      *checkpoint::Checksum::parse(checkpoint::Checksum::Algorithm::Sha256, std::string(64, 'c'));
  manifest.pieces.push_back(piece);
  return manifest;
}

TEST(Index, ReadsBackEqual) {
  const std::string text = checkpoint::write_index(example_index());
  const auto index = checkpoint::read_index(text, "index.json");
  ASSERT_TRUE(index.ok()) << index.status().to_string();
  EXPECT_EQ(checkpoint::write_index(*index), text);
  EXPECT_EQ(index->run.step, 120);
  EXPECT_EQ(index->run.data, (checkpoint::DataPosition{960, 2, 60}));
  EXPECT_EQ(index->run.seed, ~uint64_t{0});
  EXPECT_EQ(index->manifests[1].sha256, "34");
}

TEST(Index, ManifestReadsBackEqual) {
  const std::string text = checkpoint::write_manifest(example_manifest());
  const auto manifest = checkpoint::read_manifest(text, "rank-0-of-2.json");
  ASSERT_TRUE(manifest.ok()) << manifest.status().to_string();
  EXPECT_EQ(checkpoint::write_manifest(*manifest), text);
  EXPECT_EQ(manifest->files[0].header_checksum, checkpoint::Checksum(0xFEDCBA9876543210));
  EXPECT_EQ(manifest->pieces[0].checksum.hex(), "0123456789abcdef");
  EXPECT_EQ(manifest->pieces[1].checksum, example_manifest().pieces[1].checksum);
  EXPECT_EQ(manifest->pieces[0].value.fqn, "model.w \"quoted\"");
  EXPECT_EQ(manifest->pieces[1].value.rank, 1);
}

// The digests of "abc" are those of the two specifications.
TEST(Checksum, OfEitherAlgorithm) {
  const auto bytes = std::as_bytes(std::span<const char>("abc", 3));
  const auto xxh64 =
      checkpoint::Checksum::parse(checkpoint::Checksum::Algorithm::Xxh64, "44bc2cf5ad770999");
  const auto sha256 = checkpoint::Checksum::parse(
      checkpoint::Checksum::Algorithm::Sha256,
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  ASSERT_TRUE(xxh64 && sha256);
  for (const checkpoint::Checksum& checksum : {*xxh64, *sha256}) {
    EXPECT_TRUE(checksum.matches(bytes));
    EXPECT_FALSE(checksum.matches(bytes.first(2)));
  }
  EXPECT_TRUE(checkpoint::Checksum().matches({}));
  EXPECT_FALSE(
      checkpoint::Checksum::parse(checkpoint::Checksum::Algorithm::Xxh64, "44BC2CF5AD770999"));
  EXPECT_FALSE(
      checkpoint::Checksum::parse(checkpoint::Checksum::Algorithm::Sha256, "44bc2cf5ad770999"));
}

TEST(Index, EveryFlippedBitAndEveryCutIsNoticed) {
  const std::string whole = checkpoint::write_index(example_index());
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string text = whole;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    const auto index = checkpoint::read_index(text, "the/index.json");
    ASSERT_FALSE(index.ok()) << "bit " << bit;
    EXPECT_NE(index.status().sentence().find("the/index.json"), std::string::npos);
  }
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_FALSE(checkpoint::read_index(whole.substr(0, size), "index.json").ok()) << size;
  }
  EXPECT_FALSE(checkpoint::read_index(whole + " ", "index.json").ok());
}

TEST(Index, ANewerFormatIsNamed) {
  std::string text = checkpoint::write_index(example_index());
  text.replace(text.find("\"version\":1"), 11, "\"version\":2");
  const auto index = checkpoint::read_index(text, "x/index.json");
  ASSERT_FALSE(index.ok());
  EXPECT_EQ(base::exit_code(index.status().kind()), 76);
  EXPECT_NE(index.status().sentence().find("version 2"), std::string::npos);
}

// Sealed well, but with contents that would lead astray.
TEST(Index, NonsenseIsRefused) {
  const std::vector<std::function<void(checkpoint::RankManifest&)>> changes = {
      [](checkpoint::RankManifest& m) { m.pieces[0].file = "../outside"; },
      [](checkpoint::RankManifest& m) { m.pieces[0].file = "/etc/passwd"; },
      [](checkpoint::RankManifest& m) { m.files[0].name = ""; },
      [](checkpoint::RankManifest& m) { m.files[0].bytes = -1; },
      [](checkpoint::RankManifest& m) { m.pieces[0].first = -1; },
      [](checkpoint::RankManifest& m) { m.pieces[0].count = 7; },  // beyond the end
      [](checkpoint::RankManifest& m) {
        m.pieces[0].sizes = {-7, -10};
      },
      [](checkpoint::RankManifest& m) {
        m.pieces[0].sizes = {int64_t{1} << 40, int64_t{1} << 40};
      },
      [](checkpoint::RankManifest& m) { m.pieces[0].at = -4; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    checkpoint::RankManifest manifest = example_manifest();
    changes[i](manifest);
    const auto read = checkpoint::read_manifest(checkpoint::write_manifest(manifest), "m.json");
    ASSERT_FALSE(read.ok()) << i;
    EXPECT_EQ(base::exit_code(read.status().kind()), 65) << i;
  }
}

}  // namespace
}  // namespace dc::runtime::test
