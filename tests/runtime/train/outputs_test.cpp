// What a run writes: nothing that is there is lost, and what cannot be written costs no work.
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/plan/saved_state.h"
#include "runtime/train/claim.h"
#include "runtime/train/metrics.h"
#include "runtime/train/saving.h"
#include "src/base/json.h"
#include "tests/runtime/train/run_job.h"
#include "tests/runtime/train/scratch_folder.h"
#include "tests/runtime/train/training_plan.h"

namespace dc::runtime::test {
namespace {

using base::Status;

TEST(Outputs, WorkIsNotReplacedUnlessAsked) {
  const ScratchFolder folder;
  const TrainingPlan hand(2, 1);
  train::TrainOptions options;
  options.steps = 3;
  options.save = folder / "saved/model.safetensors";
  options.metrics = folder / "run.jsonl";
  ASSERT_TRUE(run_job(hand.plan, options).statuses[0].ok());
  const std::string metrics = read_text(options.metrics);
  const std::string saved = read_text(options.save);
  for (const bool by_save : {true, false}) {
    train::TrainOptions again = options;
    again.steps = 1;
    (by_save ? again.metrics : again.save).clear();
    const JobResult job = run_job(hand.plan, again);
    for (const Status& status : job.statuses) {
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(base::exit_code(status.kind()), 73);
    }
    EXPECT_NE(job.statuses[0].sentence().find("--overwrite"), std::string::npos);
    EXPECT_EQ(read_text(options.metrics), metrics);
    EXPECT_EQ(read_text(options.save), saved);
  }
  options.overwrite = true;
  options.steps = 1;
  ASSERT_TRUE(run_job(hand.plan, options).statuses[0].ok());
  EXPECT_NE(read_text(options.metrics), metrics);
  EXPECT_NE(read_text(options.save), saved);
}

TEST(Outputs, OneRunAtATimeWritesAnOutput) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / "saved");
  train::TrainOptions options;
  options.overwrite = true;
  options.metrics = folder / "run.jsonl";
  {
    const auto other = train::Metrics::open(options.metrics, false);
    ASSERT_TRUE(other.ok());
    const JobResult job = run_job(TrainingPlan(1, 1).plan, options);
    EXPECT_EQ(base::exit_code(job.statuses[0].kind()), 73) << job.statuses[0].to_string();
    EXPECT_NE(job.statuses[0].sentence().find("another run"), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(options.metrics));  // nothing was begun
  options.save = folder / "saved";
  const auto claim = train::Claim::folder(options.save);
  ASSERT_TRUE(claim.ok());
  const JobResult job = run_job(TrainingPlan(1, 1).plan, options);
  EXPECT_NE(job.statuses[0].sentence().find("another run"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(options.metrics));
}

// A GPU's arena lies in its own memory, the copy of the state in the host's.
TEST(Outputs, TheCopyForPeriodicSavesMustFitIntoTheHost) {
  TrainingPlan hand(2, 1);
  hand.plan.arena_bytes = {int64_t{1} << 40, int64_t{1} << 20};
  train::TrainOptions options;
  options.save = "saved";
  options.save_every = 1;
  const int64_t host = hand.plan.arena_bytes[1] + plan::copy_bytes(hand.plan, 0);
  const auto fits = [&](base::DeviceKind device, int64_t free) {
    return train::Saving::check_memory(options, hand.plan, 0, 2, device, free).ok();
  };
  EXPECT_TRUE(fits(base::DeviceKind::Cuda, 2 * host));
  EXPECT_FALSE(fits(base::DeviceKind::Cuda, 2 * host - 2));
  for (const base::DeviceKind device : {base::DeviceKind::Cpu, base::DeviceKind::Checked}) {
    EXPECT_FALSE(fits(device, 2 * host));
    EXPECT_TRUE(fits(device, 2 * (host + hand.plan.arena_bytes[0])));
  }
}

TEST(Claim, WaitsForARunThatIsEnding) {
  const ScratchFolder folder;
  auto ending = train::Claim::folder(folder / "");
  ASSERT_TRUE(ending.ok());
  std::jthread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const train::Claim ended = std::move(*ending);
  });
  EXPECT_TRUE(train::Claim::folder(folder / "").ok());
}

// A rename over /dev/null would replace it for the whole machine, and a pipe cannot be replaced
// after training: both are known before.
TEST(Outputs, OutputsThatTakeAPlaceAreNoDevices) {
  const ScratchFolder folder;
  const std::string pipe = folder / "pipe.safetensors";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (std::string train::TrainOptions::*output :
       {&train::TrainOptions::trace, &train::TrainOptions::save}) {
    train::TrainOptions options;
    options.*output = pipe;
    options.overwrite = true;
    options.metrics = folder / "run.jsonl";
    const JobResult job = run_job(TrainingPlan(2, 1).plan, options);
    EXPECT_EQ(base::exit_code(job.statuses[0].kind()), 73) << job.statuses[0].to_string();
    EXPECT_TRUE(std::filesystem::is_fifo(pipe));
    EXPECT_FALSE(std::filesystem::exists(options.metrics));  // nothing was begun
  }
}

TEST(Outputs, ATraceTouchesNoOtherFile) {
  const ScratchFolder folder;
  train::TrainOptions options;
  options.steps = 2;
  options.trace = folder / "trace.json";
  const std::vector<std::string> others = {"trace.json.rank0", "trace.json.rank1",
                                           "trace.json.partial"};
  for (const std::string& other : others) folder.write(other, "mine");
  // What a run that was killed left behind.
  folder.write(".trace.json.0123456789abcdef.partial", "half");
  ASSERT_TRUE(run_job(TrainingPlan(2, 1).plan, options).statuses[0].ok());
  EXPECT_TRUE(base::parse_json_value(read_text(options.trace), "trace").ok());
  for (const std::string& other : others) EXPECT_EQ(read_text(folder / other), "mine");
  const std::filesystem::directory_iterator files(folder / "");
  EXPECT_EQ(std::distance(begin(files), end(files)), 4);
}

// No file of this process grows beyond `bytes`, as on a disk that is full.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(Outputs, MetricsThatCannotBeWrittenCostNoWork) {
  const ScratchFolder folder;
  train::TrainOptions options;
  options.steps = 1000;
  options.save = folder / "saved";
  options.metrics = folder / "run.jsonl";
  JobResult job;
  {
    const FileSizeLimit limit(8192);
    job = run_job(TrainingPlan(2, 1).plan, options);
  }
  for (const Status& status : job.statuses) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(base::exit_code(status.kind()), 74) << status.to_string();
  }
  const std::string said = job.statuses[0].to_string();
  EXPECT_NE(said.find("run.jsonl: the metrics of a step cannot be written"), std::string::npos);
  const auto saved = checkpoint::CheckpointFolder(options.save).list();
  ASSERT_EQ(saved.size(), 1u) << said;
  EXPECT_NE(said.find("and the state after step " + std::to_string(saved[0].step) + " is in "),
            std::string::npos)
      << said;
  // The step whose row failed, and the one after it, are in the checkpoint.
  const std::string text = read_text(options.metrics);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n') + 1, saved[0].step) << said;
}

}  // namespace
}  // namespace dc::runtime::test
