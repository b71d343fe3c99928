// Runs in two halves: the second resumes what the first has saved, and no number shows it.
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <sstream>
#include <thread>

#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/train/claim.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "tests/runtime/train/run_job.h"
#include "tests/runtime/train/scratch_folder.h"
#include "tests/runtime/train/training_plan.h"

namespace dc::runtime::test {
namespace {

namespace fs = std::filesystem;
using base::Status;

train::TrainOptions options_for(const ScratchFolder& folder, const std::string& name,
                                int64_t steps) {
  train::TrainOptions options;
  options.weights = "init:1";
  options.steps = steps;
  options.save = folder / name;
  options.metrics = folder / (name + ".jsonl");
  options.offload_dir = folder / "";
  return options;
}

train::TrainOptions resumed(train::TrainOptions options, const std::string& from = "latest") {
  options.resume = from;
  options.weights.clear();
  return options;
}

// Every value of a checkpoint, by name.
std::map<std::string, std::vector<std::byte>> values(const std::string& path) {
  auto reader = checkpoint::CheckpointReader::open(path);
  EXPECT_TRUE(reader.ok()) << reader.status().to_string();
  std::map<std::string, std::vector<std::byte>> all;
  if (!reader.ok()) return all;
  for (const checkpoint::ValueId& id : (*reader)->values()) {
    const checkpoint::CheckpointReader::Value& value = *(*reader)->find(id);
    int64_t elements = 1;
    for (const int64_t size : value.sizes) elements *= size;
    auto& bytes = all[checkpoint::describe(id)];
    bytes.resize(static_cast<size_t>(elements * base::byte_size(value.dtype)));
    EXPECT_TRUE((*reader)->read(id, 0, elements, bytes.data()).ok());
  }
  return all;
}

// (step, loss, norm) of each row.
std::vector<std::string> rows(const std::string& metrics) {
  std::vector<std::string> rows;
  std::istringstream lines(read_text(metrics));
  for (std::string line; std::getline(lines, line);) {
    const auto row = base::parse_json_value(line, "metrics");
    EXPECT_TRUE(row.ok()) << line;
    if (!row.ok() || row->find("step") == nullptr) continue;
    rows.push_back(row->find("step")->dump() + " " + row->find("loss")->dump() + " " +
                   row->find("grad_norm")->dump());
  }
  return rows;
}

void expect_ok(const JobResult& job) {
  for (const Status& status : job.statuses) ASSERT_TRUE(status.ok()) << status.to_string();
}

TEST(Resume, AfterAnyStepTheRestHasTheSameBits) {
  for (const int world : {1, 2, 3}) {
    for (const auto home : {plan::Space::Device, plan::Space::Host, plan::Space::Disk}) {
      SCOPED_TRACE(std::to_string(world) + " ranks, space " +
                   std::to_string(static_cast<int>(home)));
      const ScratchFolder folder;
      const TrainingPlan hand(world, world == 2 ? 4 : 1, true, home);
      const train::TrainOptions straight = options_for(folder, "straight", 6);
      expect_ok(run_job(hand.plan, straight));
      for (int64_t half = 0; half <= 6; ++half) {
        SCOPED_TRACE("resumed after step " + std::to_string(half));
        train::TrainOptions options = options_for(folder, "half" + std::to_string(half), half);
        if (half > 0) expect_ok(run_job(hand.plan, options));
        options.steps = 6;
        if (half == 0) {  // nothing to resume yet: the run starts from --weights
          options.resume = "latest";
        } else {
          options = resumed(options);
        }
        expect_ok(run_job(hand.plan, options));
        EXPECT_EQ(values(*checkpoint::find_checkpoint(options.save)),
                  values(*checkpoint::find_checkpoint(straight.save)));
        EXPECT_EQ(rows(options.metrics), rows(straight.metrics));
      }
    }
  }
}

TEST(Resume, SavingEveryStepChangesNothing) {
  const ScratchFolder folder;
  const TrainingPlan hand(3, 2);
  const train::TrainOptions straight = options_for(folder, "straight", 7);
  expect_ok(run_job(hand.plan, straight));
  train::TrainOptions often = options_for(folder, "often", 7);
  often.save_every = 1;
  expect_ok(run_job(hand.plan, often));
  EXPECT_EQ(values(*checkpoint::find_checkpoint(often.save)),
            values(*checkpoint::find_checkpoint(straight.save)));
  EXPECT_EQ(rows(often.metrics), rows(straight.metrics));
  const auto all = checkpoint::CheckpointFolder(often.save).list();
  ASSERT_EQ(all.size(), 7u);
  for (const checkpoint::StoredCheckpoint& one : all) {
    const train::TrainOptions same = options_for(folder, "to" + std::to_string(one.step), one.step);
    expect_ok(run_job(hand.plan, same));
    EXPECT_EQ(values(one.path), values(*checkpoint::find_checkpoint(same.save))) << one.path;
  }
}

TEST(Resume, OntoOtherWorldsAndBack) {
  const ScratchFolder folder;
  const train::TrainOptions first = options_for(folder, "two", 4);
  expect_ok(run_job(TrainingPlan(2, 1).plan, first));
  const auto before = values(*checkpoint::find_checkpoint(first.save));
  std::string last = first.save;
  for (const int world : {3, 1, 4, 2}) {
    const std::string name = "onto" + std::to_string(world);
    const train::TrainOptions next = resumed(options_for(folder, name, 4), last);
    expect_ok(run_job(TrainingPlan(world, 1).plan, next));
    EXPECT_EQ(values(*checkpoint::find_checkpoint(next.save)), before) << world;
    last = next.save;
  }
  // And on they go with the same numbers but for the order of sums.
  train::TrainOptions on = resumed(options_for(folder, "on", 8), last);
  expect_ok(run_job(TrainingPlan(2, 1).plan, on));
  train::TrainOptions straight = options_for(folder, "straight", 8);
  expect_ok(run_job(TrainingPlan(2, 1).plan, straight));
  EXPECT_EQ(values(*checkpoint::find_checkpoint(on.save)),
            values(*checkpoint::find_checkpoint(straight.save)));
}

// Shards inside hosts, repeated across them.
TEST(Resume, FromHostsToOtherWorldsAndBack) {
  const ScratchFolder folder;
  const auto of = [](int world, int hosts) {
    return TrainingPlan(world, 2, true, plan::Space::Device, hosts).plan;
  };
  const train::TrainOptions straight = options_for(folder, "straight", 6);
  expect_ok(run_job(of(4, 2), straight));
  train::TrainOptions first = options_for(folder, "hosts", 3);
  first.save_every = 1;
  expect_ok(run_job(of(4, 2), first));
  const auto before = values(*checkpoint::find_checkpoint(first.save));
  std::string last = first.save;
  int hop = 0;
  for (const auto& [world, hosts] : {std::pair(3, 1), {4, 2}, {4, 1}, {6, 2}, {6, 3}, {4, 2}}) {
    const train::TrainOptions next =
        resumed(options_for(folder, "hop" + std::to_string(++hop), 3), last);
    expect_ok(run_job(of(world, hosts), next));
    EXPECT_EQ(values(*checkpoint::find_checkpoint(next.save)), before) << world << " " << hosts;
    last = next.save;
  }
  const train::TrainOptions on = resumed(options_for(folder, "on", 6), last);
  expect_ok(run_job(of(4, 2), on));
  EXPECT_EQ(values(*checkpoint::find_checkpoint(on.save)),
            values(*checkpoint::find_checkpoint(straight.save)));
}

TEST(Resume, OnlyTheNewestStay) {
  const ScratchFolder folder;
  train::TrainOptions options = options_for(folder, "saved", 9);
  options.save_every = 2;
  options.keep = 2;
  expect_ok(run_job(TrainingPlan(2, 1).plan, options));
  const auto left = checkpoint::CheckpointFolder(options.save).list();
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].step, 8);
  EXPECT_EQ(left[1].step, 9);
}

TEST(Resume, WorkIsNotReplacedUnlessAsked) {
  const ScratchFolder folder;
  const plan::Plan plan = TrainingPlan(2, 1).plan;
  train::TrainOptions options = options_for(folder, "saved", 4);
  options.save_every = 2;
  expect_ok(run_job(plan, options));
  options.metrics.clear();
  const auto refused = [&](const train::TrainOptions& run) {
    const auto statuses = run_job(plan, run).statuses;
    EXPECT_FALSE(statuses[0].ok());
    EXPECT_EQ(base::exit_code(statuses[0].kind()), 73) << statuses[0].to_string();
    EXPECT_NE(statuses[0].sentence().find("--overwrite"), std::string::npos);
  };
  refused(options);  // a run that starts anew
  train::TrainOptions older = resumed(options, options.save + "/step-00000002");
  older.steps = 3;
  refused(older);  // one that leaves out steps that were done
  older.overwrite = true;
  expect_ok(run_job(plan, older));
  const auto left = checkpoint::CheckpointFolder(options.save).list();
  ASSERT_EQ(left.size(), 2u);  // step 4 is of a run that this one does not continue
  EXPECT_EQ(left.back().step, 3);
}

TEST(Resume, ADamagedCheckpointIsNamedAndTheLastGoodOneOffered) {
  const ScratchFolder folder;
  const plan::Plan plan = TrainingPlan(2, 1).plan;
  train::TrainOptions options = options_for(folder, "saved", 6);
  options.save_every = 2;
  expect_ok(run_job(plan, options));
  const auto damage = [](const std::string& path) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(-9, std::ios::end);
    const char byte = static_cast<char>(file.get() ^ 4);
    file.seekp(-9, std::ios::end);
    file.put(byte);
  };
  damage(options.save + "/step-00000006/rank-1-of-2.safetensors");
  fs::remove(options.save + "/step-00000004/rank-0-of-2.json");
  options.steps = 8;
  const std::string newest = options.save + "/step-00000006";
  for (const std::string& from : {std::string("latest"), newest, newest + "/"}) {
    const auto statuses = run_job(plan, resumed(options, from)).statuses;
    const std::string said = statuses[1].to_string();
    EXPECT_EQ(base::exit_code(statuses[1].kind()), 65);
    EXPECT_NE(said.find("/rank-1-of-2.safetensors is damaged: tensor 'exp_avg_sq/model.w'"),
              std::string::npos)
        << said;
    EXPECT_NE(said.find("the last good one is " + options.save + "/step-00000002"),
              std::string::npos)
        << said;
  }
  train::TrainOptions good = resumed(options, options.save + "/step-00000002");
  good.overwrite = true;
  expect_ok(run_job(plan, good));
  EXPECT_EQ(checkpoint::CheckpointFolder(options.save).list().back().step, 8);
}

// However its path is written.
TEST(Resume, ACheckpointThatIsThereIsNotWrittenAgain) {
  const ScratchFolder folder;
  const plan::Plan plan = TrainingPlan(2, 1).plan;
  train::TrainOptions options = options_for(folder, "saved", 4);
  expect_ok(run_job(plan, options));
  const std::string checkpoint = options.save + "/step-00000004";
  const auto inode = [&] {
    struct stat info {};
    EXPECT_EQ(stat(checkpoint.c_str(), &info), 0);
    return info.st_ino;
  };
  const auto before = inode();
  for (const std::string& save : {options.save, options.save + "/"}) {
    for (const std::string& from : {std::string("latest"), checkpoint + "/"}) {
      train::TrainOptions again = resumed(options, from);
      again.save = save;
      expect_ok(run_job(plan, again));
      EXPECT_EQ(inode(), before) << save << " from " << from;
    }
  }
}

TEST(Resume, MetricsGoOnWhereTheCheckpointIs) {
  const ScratchFolder folder;
  const plan::Plan plan = TrainingPlan(2, 1).plan;
  train::TrainOptions options = options_for(folder, "saved", 5);
  expect_ok(run_job(plan, options));
  const auto whole = rows(options.metrics);
  // As if killed two steps after the last save, in the middle of a line; of a length that no text
  // file of another kind may have.
  fs::remove_all(options.save);
  options.steps = 3;
  options.metrics = folder / "other.jsonl";
  expect_ok(run_job(plan, options));
  const std::string text = read_text(folder / "saved.jsonl");
  folder.write("other.jsonl", text.substr(0, text.size() - 20));
  fs::resize_file(options.metrics, base::kMaxTextBytes + 1);
  options.steps = 5;
  expect_ok(run_job(plan, resumed(options)));
  EXPECT_EQ(rows(options.metrics), whole);
  // A file of something else is not touched.
  folder.write("other.jsonl", "my diary\n");
  options.steps = 6;
  const auto statuses = run_job(plan, resumed(options)).statuses;
  EXPECT_EQ(base::exit_code(statuses[0].kind()), 73);
  EXPECT_EQ(read_text(options.metrics), "my diary\n");
}

// --resume latest without a checkpoint starts anew, so all rows would go: only where this very run
// wrote them before it was killed.
TEST(Resume, MetricsOfAnotherRunStay) {
  const ScratchFolder folder;
  const plan::Plan plan = TrainingPlan(2, 1).plan;
  train::TrainOptions options = options_for(folder, "first", 3);
  expect_ok(run_job(plan, options));
  const std::string before = read_text(options.metrics);
  train::TrainOptions other = options_for(folder, "second", 2);
  other.metrics = options.metrics;
  other.resume = train::kLatest;
  const auto statuses = run_job(plan, other).statuses;
  EXPECT_EQ(base::exit_code(statuses[0].kind()), 73) << statuses[0].to_string();
  EXPECT_NE(statuses[0].sentence().find("--overwrite"), std::string::npos);
  EXPECT_EQ(read_text(options.metrics), before);
  other.overwrite = true;
  expect_ok(run_job(plan, other));
  EXPECT_EQ(rows(other.metrics).size(), 2u);
  // The first run again, as if it had been killed before its first checkpoint.
  folder.write("first.jsonl", before);
  fs::remove_all(options.save);
  options.resume = train::kLatest;
  expect_ok(run_job(plan, options));
  EXPECT_EQ(rows(options.metrics).size(), 3u);
}

// As a launcher starts a job again while the job that it stopped still saves.
TEST(Resume, ARunThatIsEndingIsWaitedForAndThenContinued) {
  const ScratchFolder folder;
  const plan::Plan plan = TrainingPlan(2, 1).plan;
  train::TrainOptions options = options_for(folder, "saved", 4);
  options.save_every = 2;
  expect_ok(run_job(plan, options));
  const std::string last = options.save + "/step-00000004", hidden = folder / "not yet";
  fs::rename(last, hidden);
  auto ending = train::Claim::folder(options.save);
  ASSERT_TRUE(ending.ok());
  std::jthread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    fs::rename(hidden, last);
    const train::Claim ended = std::move(*ending);
  });
  options.steps = 6;
  expect_ok(run_job(plan, resumed(options)));
  EXPECT_EQ(rows(options.metrics).size(), 6u);
  EXPECT_TRUE(fs::exists(last));
}

TEST(Resume, WithNothingToResumeAndNoWeights) {
  const ScratchFolder folder;
  train::TrainOptions options = resumed(options_for(folder, "saved", 4));
  const auto statuses = run_job(TrainingPlan(2, 1).plan, options).statuses;
  EXPECT_EQ(base::exit_code(statuses[0].kind()), 66) << statuses[0].to_string();
  options.resume = folder / "nowhere";
  EXPECT_EQ(base::exit_code(run_job(TrainingPlan(2, 1).plan, options).statuses[1].kind()), 66);
}

}  // namespace
}  // namespace dc::runtime::test
