#include "src/base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>

namespace dc::base {
namespace {

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("dc_file_test_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ / name; }
  size_t files() const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) count += entry.exists();
    return count;
  }
  std::filesystem::path folder_;
};

TEST_F(FileTest, WritesAndReads) {
  ASSERT_TRUE(write_file_atomically(path("a"), std::string_view("one")).ok());
  ASSERT_TRUE(write_file_atomically(path("a"), std::string_view("two!")).ok());
  EXPECT_EQ(*read_file(path("a")), "two!");
  auto mapped = MappedFile::open(path("a"));
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ(mapped->bytes().size(), 4u);
  EXPECT_EQ(mapped->bytes()[3], '!');
  EXPECT_EQ(files(), 1u);  // no temporary left
}

TEST_F(FileTest, EmptyFileMapsToNothing) {
  ASSERT_TRUE(write_file_atomically(path("empty"), std::string_view()).ok());
  auto mapped = MappedFile::open(path("empty"));
  ASSERT_TRUE(mapped.ok());
  EXPECT_TRUE(mapped->bytes().empty());
}

TEST_F(FileTest, NamesTheProblem) {
  auto missing = MappedFile::open(path("nothing"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().kind(), ErrorKind::MissingInput);
  EXPECT_NE(missing.status().sentence().find("nothing"), std::string::npos);
  auto folder = read_file(folder_);
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.status().kind(), ErrorKind::BadInput);
  const Status write = write_file_atomically(path("no/such/folder"), std::string_view("x"));
  ASSERT_FALSE(write.ok());
  EXPECT_EQ(write.kind(), ErrorKind::CannotWrite);
  EXPECT_EQ(write_file_atomically(folder_, std::string_view("x")).kind(), ErrorKind::CannotWrite);
  EXPECT_EQ(files(), 0u);
}

TEST_F(FileTest, SeveralWritersShareOneOutput) {
  auto owner = OutputFile::create(path("shared"), 4);
  ASSERT_TRUE(owner.ok());
  {
    auto other = OutputFile::join(owner->temporary_path());
    ASSERT_TRUE(other.ok());
    ASSERT_TRUE(other->write_at(2, std::array<uint8_t, 2>{'c', 'd'}).ok());
    ASSERT_TRUE(other->flush().ok());
  }
  ASSERT_TRUE(owner->write_at(0, std::array<uint8_t, 2>{'a', 'b'}).ok());
  EXPECT_FALSE(std::filesystem::exists(path("shared")));
  ASSERT_TRUE(owner->commit().ok());
  EXPECT_EQ(*read_file(path("shared")), "abcd");
}

// A rename over a device such as /dev/null would replace it for the whole machine.
TEST_F(FileTest, APipeIsNotReplacedByAFile) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const Status write = write_file_atomically(path("pipe"), std::string_view("x"));
  ASSERT_FALSE(write.ok());
  EXPECT_EQ(write.kind(), ErrorKind::CannotWrite);
  EXPECT_EQ(check_writable(path("pipe")).kind(), ErrorKind::CannotWrite);
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));
}

TEST_F(FileTest, AbandonedOutputLeavesNothing) {
  { ASSERT_TRUE(OutputFile::create(path("gone"), 100).ok()); }
  EXPECT_EQ(files(), 0u);
}

}  // namespace
}  // namespace dc::base
