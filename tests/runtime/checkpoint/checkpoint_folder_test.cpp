#include "runtime/checkpoint/checkpoint_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/runtime/train/scratch_folder.h"

namespace dc::runtime::test {
namespace {

namespace fs = std::filesystem;

void write_whole(const checkpoint::CheckpointFolder& folder, int64_t step,
                 const std::string& index) {
  ASSERT_TRUE(folder.begin(step).ok());
  std::ofstream(folder.partial_of(step) + "/index.json") << index;
  const base::Status published = folder.publish(step);
  ASSERT_TRUE(published.ok()) << published.to_string();
}

std::vector<int64_t> steps(const checkpoint::CheckpointFolder& folder) {
  std::vector<int64_t> steps;
  for (const checkpoint::StoredCheckpoint& one : folder.list()) steps.push_back(one.step);
  return steps;
}

TEST(CheckpointFolder, ListsWhatIsWhole) {
  const ScratchFolder scratch;
  const checkpoint::CheckpointFolder folder(scratch / "saved");
  EXPECT_TRUE(folder.list().empty());
  fs::create_directory(folder.root());
  for (const int64_t step : {7, 100, 123456789}) write_whole(folder, step, "x");
  fs::create_directory(scratch / "saved/step-00000200");  // no index
  fs::create_directory(scratch / "saved/step-x");
  fs::create_directory(scratch / "saved/other");
  ASSERT_TRUE(folder.begin(300).ok());
  EXPECT_EQ(steps(folder), (std::vector<int64_t>{7, 100, 123456789}));
  EXPECT_EQ(*checkpoint::find_checkpoint(folder.root()), scratch / "saved/step-123456789");
  EXPECT_EQ(*checkpoint::find_checkpoint(scratch / "saved/step-00000007"),
            scratch / "saved/step-00000007");
  EXPECT_EQ(base::exit_code(checkpoint::find_checkpoint(scratch / "saved/other").status().kind()),
            66);
}

TEST(CheckpointFolder, ANewOneTakesThePlaceOfItsStepAndEndsLaterOnes) {
  const ScratchFolder scratch;
  const checkpoint::CheckpointFolder folder(scratch / "saved");
  fs::create_directory(folder.root());
  for (const int64_t step : {10, 20, 30}) write_whole(folder, step, "old");
  write_whole(folder, 20, "new");
  EXPECT_EQ(steps(folder), (std::vector<int64_t>{10, 20}));
  EXPECT_EQ(read_text(folder.path_of(20) + "/index.json"), "new");
  EXPECT_EQ(read_text(folder.path_of(10) + "/index.json"), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.root()), {}), 2);  // nothing hidden either
}

TEST(CheckpointFolder, KeepsTheNewest) {
  const ScratchFolder scratch;
  const checkpoint::CheckpointFolder folder(scratch / "saved");
  fs::create_directory(folder.root());
  for (const int64_t step : {10, 20, 30, 40}) write_whole(folder, step, "x");
  folder.keep_newest(5);
  EXPECT_EQ(steps(folder).size(), 4u);
  folder.keep_newest(2);
  EXPECT_EQ(steps(folder), (std::vector<int64_t>{30, 40}));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.root()), {}), 2);
}

TEST(CheckpointFolder, LeftoversOfTheKilledGo) {
  const ScratchFolder scratch;
  const checkpoint::CheckpointFolder folder(scratch / "saved");
  fs::create_directory(folder.root());
  write_whole(folder, 10, "x");
  ASSERT_TRUE(folder.begin(20).ok());
  fs::create_directory(scratch / "saved/.step-00000005.removed");
  fs::create_directory(scratch / "saved/.mine");
  folder.remove_leftovers();
  EXPECT_TRUE(fs::exists(scratch / "saved/.mine"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.root()), {}), 2);
  EXPECT_EQ(steps(folder), (std::vector<int64_t>{10}));
  ASSERT_TRUE(folder.begin(20).ok());
  scratch.write("saved/.step-00000020.partial/rest", "x");
  ASSERT_TRUE(folder.begin(20).ok());  // what was there goes
  EXPECT_TRUE(fs::is_empty(folder.partial_of(20)));
}

TEST(CheckpointFolder, AFolderThatCannotBeMadeIsNamed) {
  const ScratchFolder scratch;
  const base::Status status = checkpoint::CheckpointFolder(scratch / "missing").begin(3);
  EXPECT_EQ(base::exit_code(status.kind()), 73);
  EXPECT_NE(status.sentence().find("missing/.step-00000003.partial"), std::string::npos);
}

}  // namespace
}  // namespace dc::runtime::test
