#include "src/base/archive/zip.h"

#include <gtest/gtest.h>

#include "tests/src/archive/temporary_folder.h"
#include "tests/src/archive/zip_builder.h"

namespace dc::base::archive {
namespace {

using tests::TemporaryFolder;
using tests::ZipBuilder;
using tests::ZipItem;

std::string text_of(const ZipArchive& archive, const std::string& name) {
  const ZipEntry* entry = archive.find(name);
  if (entry == nullptr) return "(absent)";
  auto contents = archive.read(*entry);
  return contents.ok() ? std::string(contents->begin(), contents->end()) : "(unreadable)";
}

// Opens it and reads every entry; the message of the first failure, "" if all is well.
std::string failure(const TemporaryFolder& folder, const std::string& bytes) {
  auto archive = ZipArchive::open(folder.write("a.zip", bytes));
  if (!archive.ok()) {
    EXPECT_EQ(archive.status().kind(), ErrorKind::BadInput);
    return archive.status().sentence();
  }
  for (const ZipEntry& entry : archive->entries()) {
    auto contents = archive->read(entry);
    if (!contents.ok()) return contents.status().sentence();
  }
  return "";
}

TEST(Zip, ReadsStoredAndDeflated) {
  const std::string large(100000, 'x');
  ZipBuilder builder;
  builder.add({.name = "m/a", .data = "stored", .padding = 33});
  builder.add({.name = "m/b", .data = large, .deflate = true});
  builder.add({.name = "m/c/d", .data = "64", .zip64 = true, .sizes_follow = true});
  builder.add({.name = "m/empty", .data = "", .deflate = true});
  builder.add({.name = "m/later", .data = large, .deflate = true, .sizes_follow = true});
  for (const bool zip64_end : {false, true}) {
    TemporaryFolder folder;
    auto archive = ZipArchive::open(folder.write("a.zip", builder.build(zip64_end)));
    ASSERT_TRUE(archive.ok()) << archive.status().to_string();
    EXPECT_EQ(archive->root(), "m");
    EXPECT_EQ(text_of(*archive, "a"), "stored");
    EXPECT_EQ(text_of(*archive, "b"), large);
    EXPECT_EQ(text_of(*archive, "c/d"), "64");
    EXPECT_EQ(text_of(*archive, "empty"), "");
    EXPECT_EQ(text_of(*archive, "later"), large);
    EXPECT_EQ(archive->find("m/a"), nullptr);
    EXPECT_EQ(archive->below_root(archive->entries()[2]), "c/d");
    auto in_place = archive->stored(*archive->find("a"));
    ASSERT_TRUE(in_place.ok());
    EXPECT_EQ(in_place->size(), 6u);
    EXPECT_FALSE(archive->stored(*archive->find("b")).ok());
    for (const ZipEntry& entry : archive->entries()) EXPECT_TRUE(archive->verify_crc(entry).ok());
  }
}

TEST(Zip, RefusesDangerousNames) {
  TemporaryFolder folder;
  for (const std::string& name :
       {std::string("/etc/x"), std::string("m/../x"), std::string(".."), std::string("m\\x"),
        std::string("m/a\0b", 5), std::string("m//x"), std::string("./x"), std::string("c:x"),
        std::string("")}) {
    EXPECT_NE(failure(folder, ZipBuilder().add(name, "1").build()).find("not allowed"),
              std::string::npos)
        << name;
  }
}

TEST(Zip, RefusesDuplicatesOverlapAndDisagreement) {
  TemporaryFolder folder;
  EXPECT_NE(failure(folder, ZipBuilder().add("m/a", "1").add("m/a", "2").build()).find("twice"),
            std::string::npos);
  // Same name length and data: only the position tells that two entries share bytes.
  const std::string overlap = ZipBuilder().add("m/a", "1").add("m/b", "1").alias(1, 0).build();
  EXPECT_NE(failure(folder, overlap), "");
  EXPECT_NE(
      failure(folder, ZipBuilder().add({.name = "m/a", .data = "1", .local_name = "m/b"}).build())
          .find("differently"),
      std::string::npos);
  EXPECT_NE(
      failure(folder, ZipBuilder().add({.name = "m/a", .data = "1", .claimed_size = 2}).build())
          .find("two sizes"),
      std::string::npos);
}

TEST(Zip, RefusesBombs) {
  TemporaryFolder folder;
  const std::string zeros(4 << 20, '\0');
  EXPECT_NE(
      failure(folder, ZipBuilder().add({.name = "m/a", .data = zeros, .deflate = true}).build())
          .find("implausibly"),
      std::string::npos);
  const std::string claims = ZipBuilder()
                                 .add({.name = "m/a",
                                       .data = "x",
                                       .deflate = true,
                                       .zip64 = true,
                                       .claimed_size = int64_t{1} << 40})
                                 .build();
  EXPECT_NE(failure(folder, claims).find("too large"), std::string::npos);
  const std::string longer =
      ZipBuilder().add({.name = "m/a", .data = "xxxx", .deflate = true, .claimed_size = 3}).build();
  EXPECT_NE(failure(folder, longer).find("cannot be inflated"), std::string::npos);
}

TEST(Zip, RefusesOtherFiles) {
  TemporaryFolder folder;
  EXPECT_NE(failure(folder, "").find("empty"), std::string::npos);
  EXPECT_NE(failure(folder, "not a zip file, but long enough for one").find("not a ZIP"),
            std::string::npos);
  EXPECT_EQ(ZipArchive::open(folder / "none").status().kind(), ErrorKind::MissingInput);
}

std::string small_archive() {
  return ZipBuilder()
      .add({.name = "m/a", .data = "hello", .padding = 5})
      .add({.name = "m/b", .data = std::string(300, 'b'), .deflate = true})
      .add({.name = "m/c", .data = "64", .zip64 = true, .sizes_follow = true})
      .build(true);
}

TEST(Zip, EveryTruncationIsRefused) {
  TemporaryFolder folder;
  const std::string whole = small_archive();
  ASSERT_EQ(failure(folder, whole), "");
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(failure(folder, whole.substr(0, length)), "") << length;
  }
}

// A flipped byte is refused, or it hit a byte without meaning and the contents are the same.
TEST(Zip, EveryFlippedByteIsHarmless) {
  TemporaryFolder folder;
  const std::string whole = small_archive();
  size_t refused = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const int mask : {0x01, 0x80, 0xff}) {
      std::string broken = whole;
      broken[i] = static_cast<char>(broken[i] ^ mask);
      if (!failure(folder, broken).empty()) {
        ++refused;
        continue;
      }
      auto archive = ZipArchive::open(folder / "a.zip");
      ASSERT_TRUE(archive.ok());
      EXPECT_EQ(text_of(*archive, "a"), "hello") << i;
      EXPECT_EQ(text_of(*archive, "b"), std::string(300, 'b')) << i;
      EXPECT_EQ(text_of(*archive, "c"), "64") << i;
    }
  }
  EXPECT_GT(refused, whole.size());
}

}  // namespace
}  // namespace dc::base::archive
