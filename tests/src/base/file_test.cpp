#include "src/base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "src/base/input_file.h"
#include "src/base/mapped_inputs.h"
#include "src/base/output_names.h"

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

TEST_F(FileTest, ALinkStaysAndWhatItNamesIsWritten) {
  std::filesystem::create_directory(path("other"));
  ASSERT_TRUE(write_file_atomically(path("other/file"), std::string_view("old")).ok());
  std::filesystem::create_symlink("other/file", path("link"));  // relative to its own folder
  std::filesystem::create_symlink(path("link"), path("again"));
  std::filesystem::create_symlink("other/new", path("dangling"));
  std::filesystem::create_symlink("loop", path("loop"));
  ASSERT_TRUE(write_file_atomically(path("again"), std::string_view("new")).ok());
  ASSERT_TRUE(write_file_atomically(path("dangling"), std::string_view("made")).ok());
  EXPECT_EQ(*read_file(path("other/file")), "new");
  EXPECT_EQ(*read_file(path("other/new")), "made");
  for (const char* link : {"link", "again", "dangling"})
    EXPECT_TRUE(std::filesystem::is_symlink(path(link))) << link;
  EXPECT_EQ(write_file_atomically(path("loop"), std::string_view("x")).kind(),
            ErrorKind::CannotWrite);
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

// Opening a pipe would wait for its writer for ever; a device has no end.
TEST_F(FileTest, InputsAreRegularFilesOfBoundedSize) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  for (const std::string& input :
       {path("pipe"), std::string("/dev/zero"), std::string("/dev/null"), std::string(folder_)}) {
    EXPECT_EQ(read_file(input).status().kind(), ErrorKind::BadInput) << input;
    EXPECT_EQ(MappedFile::open(input).status().kind(), ErrorKind::BadInput) << input;
    EXPECT_EQ(InputFile::open(input).status().kind(), ErrorKind::BadInput) << input;
  }
  ASSERT_TRUE(write_file_atomically(path("a"), std::string_view("12345")).ok());
  EXPECT_EQ(*read_file(path("a"), 5), "12345");
  const auto large = read_file(path("a"), 4);
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.status().kind(), ErrorKind::BadInput);
}

TEST_F(FileTest, AnOutputThatIsAnInputIsRefused) {
  ASSERT_TRUE(write_file_atomically(path("a"), std::string_view("1")).ok());
  std::filesystem::create_symlink(path("a"), path("link"));
  const std::string inputs[] = {"", path("absent"), path("a")};
  for (const std::string& output : {path("a"), path("./a"), path("link")}) {
    const Status status = check_no_input(output, inputs);
    EXPECT_EQ(status.kind(), ErrorKind::Usage) << output;
    EXPECT_EQ(status.code(), "DC1011");
  }
  for (const std::string& output : {std::string(), path("absent"), path("b")})
    EXPECT_TRUE(check_no_input(output, inputs).ok()) << output;
  EXPECT_EQ(check_output(path("link"), inputs).code(), "DC1011");
  EXPECT_EQ(check_output(path("no/folder"), inputs).kind(), ErrorKind::CannotWrite);
  EXPECT_TRUE(check_output(path("b"), inputs).ok());
  EXPECT_FALSE(std::filesystem::exists(path("b")));
}

// Another place would be no cure.
TEST_F(FileTest, TooManyOpenFilesNameTheirLimit) {
  ASSERT_TRUE(write_file_atomically(path("a"), std::string_view("1")).ok());
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{0, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  const Status written = write_file_atomically(path("b"), std::string_view("1"));
  const Status read = read_file(path("a")).status();
  setrlimit(RLIMIT_NOFILE, &before);
  for (const Status& status : {written, read}) {
    EXPECT_NE(status.sentence().find("ulimit -n"), std::string::npos) << status.sentence();
  }
}

TEST_F(FileTest, TwoOutputsAreTwoFiles) {
  std::filesystem::create_symlink(path(""), path("here"));
  for (const std::string& other : {path("a"), path("./a"), path("here/a"), path("b/../a")}) {
    const std::string outputs[] = {path("b"), path("a"), "", other};
    EXPECT_EQ(check_distinct(outputs).code(), "DC1012") << other;
  }
  const std::string outputs[] = {path("a"), "", path("b"), "", path("no/folder")};
  EXPECT_TRUE(check_distinct(outputs).ok());
}

TEST_F(FileTest, AnInputCutShortIsAnError) {
  ASSERT_TRUE(write_file_atomically(path("a"), std::string_view("12345678")).ok());
  const auto file = InputFile::open(path("a"));
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path("a"), 5);
  std::array<uint8_t, 4> bytes{};
  EXPECT_TRUE(file->read_at(1, bytes).ok());
  EXPECT_EQ(bytes[3], '5');
  EXPECT_EQ(file->read_at(2, bytes).kind(), ErrorKind::Io);
}

TEST_F(FileTest, AMappingCutShortEndsTheProcessWithAMessage) {
  const std::string name = path("mapped");
  ASSERT_TRUE(write_file_atomically(name, std::string(100000, 'x')).ok());
  EXPECT_EXIT(
      {
        report_lost_inputs("test");
        const auto file = MappedFile::open(name);
        std::filesystem::resize_file(name, 10);
        volatile uint8_t seen = file->bytes()[90000];
        _exit(seen);
      },
      ::testing::ExitedWithCode(74), "test: error.DC1007.: .*mapped became shorter");
}

// A process that was killed leaves its temporary; in a container the next one has its number.
TEST_F(FileTest, StalePartialFilesGoAndThoseInUseStay) {
  auto busy = OutputFile::create(path("out"), 4);
  ASSERT_TRUE(busy.ok());
  const std::string stale = path(".out.12.0.partial"), other = path(".outer.12.0.partial");
  std::ofstream(stale) << "x";
  std::ofstream(other) << "x";
  auto second = OutputFile::create(path("out"), 4);
  ASSERT_TRUE(second.ok());
  EXPECT_NE(busy->temporary_path(), second->temporary_path());
  EXPECT_FALSE(std::filesystem::exists(stale));
  EXPECT_TRUE(std::filesystem::exists(other));
  EXPECT_TRUE(std::filesystem::exists(busy->temporary_path()));
  ASSERT_TRUE(busy->write_at(0, std::array<uint8_t, 4>{'o', 'n', 'e', '!'}).ok());
  ASSERT_TRUE(busy->commit().ok());
  EXPECT_EQ(*read_file(path("out")), "one!");
}

TEST_F(FileTest, ANewFileHasItsNameAtOnceAndReplacesNone) {
  {
    auto file = OutputFile::create_new(path("new"), 6);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    EXPECT_EQ(std::filesystem::file_size(path("new")), 6u);
    const std::array<uint8_t, 2> bytes = {'a', 'b'};
    ASSERT_TRUE(file->write_at(4, bytes).ok());
    ASSERT_TRUE(file->flush().ok());
  }
  EXPECT_EQ(*read_file(path("new")), std::string("\0\0\0\0ab", 6));
  const auto again = OutputFile::create_new(path("new"), 6);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(exit_code(again.status().kind()), 73);
  EXPECT_EQ(*read_file(path("new")), std::string("\0\0\0\0ab", 6));
}

TEST_F(FileTest, AbandonedOutputLeavesNothing) {
  { ASSERT_TRUE(OutputFile::create(path("gone"), 100).ok()); }
  EXPECT_EQ(files(), 0u);
}

}  // namespace
}  // namespace dc::base
