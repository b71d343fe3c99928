#include "runtime/train/train.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "runtime/train/data.h"
#include "runtime/train/weights.h"
#include "src/base/archive/safetensors.h"
#include "src/base/json.h"
#include "tests/runtime/train/run_job.h"
#include "tests/runtime/train/scratch_folder.h"
#include "tests/runtime/train/training_plan.h"

namespace dc::runtime::test {
namespace {

using base::DType;
using base::ErrorKind;
using base::Status;

std::vector<float> read_tensor(const std::string& path, const std::string& name) {
  auto file = base::archive::SafetensorsFile::open(path);
  EXPECT_TRUE(file.ok()) << file.status().to_string();
  if (!file.ok()) return {};
  const auto* tensor = file->find(name);
  EXPECT_NE(tensor, nullptr);
  if (!tensor) return {};
  EXPECT_EQ(tensor->shape, (std::vector<int64_t>{7, 10}));
  std::vector<float> values(static_cast<size_t>(tensor->bytes / 4));
  std::memcpy(values.data(), file->bytes(*tensor).data(), static_cast<size_t>(tensor->bytes));
  return values;
}

// The step again, in double precision on one rank: mean gradient, clip at 1, AdamW with lr 0.01.
std::vector<double> reference(const std::vector<float>& start, const TrainingPlan& hand,
                              int64_t steps, std::vector<double>* first_gradient,
                              std::vector<double>* losses) {
  const int64_t global = int64_t{hand.plan.world()} * hand.plan.accumulation;
  train::DataRequest request = train::DataRequest::of(hand.plan, 0, {});
  request.shape = {global, 1, 0, 1};
  auto data = train::DataSource::open({"synthetic:2"}, request);
  std::vector<float> x(TrainingPlan::kElements), loss(1);
  std::vector<double> w(start.begin(), start.end()), m(w.size()), v(w.size());
  for (int64_t step = 1; step <= steps; ++step) {
    std::vector<double> g(w.size());
    double loss_sum = 0, squares = 0;
    for (int64_t mb = 0; mb < global; ++mb) {
      const kernel::BoundTensor inputs[] = {
          {x.data(), DType::F32, request.tensors[0].sizes, request.tensors[0].strides},
          {loss.data(), DType::F32, request.tensors[1].sizes, request.tensors[1].strides}};
      EXPECT_TRUE((*data)->fill(step - 1, mb, inputs).ok());
      for (size_t i = 0; i < g.size(); ++i) g[i] += x[i] / static_cast<double>(global);
      loss_sum += loss[0];
    }
    losses->push_back(loss_sum / static_cast<double>(global));
    if (step == 1) *first_gradient = g;
    for (const double e : g) squares += e * e;
    const double clip = std::min(1.0, 1 / (std::sqrt(squares) + 1e-6));
    for (size_t i = 0; i < g.size(); ++i) {
      const double e = g[i] * clip;
      m[i] = 0.9 * m[i] + 0.1 * e;
      v[i] = 0.999 * v[i] + 0.001 * e * e;
      const double power = static_cast<double>(step);
      w[i] -= 0.01 * (m[i] / (1 - std::pow(0.9, power))) /
              (std::sqrt(v[i] / (1 - std::pow(0.999, power))) + 1e-8);
    }
  }
  return w;
}

std::vector<float> drawn_start() {
  const ScratchFolder folder;
  const TrainingPlan hand(1, 1);
  auto weights = train::open_weights("init:1", hand.plan);
  std::vector<float> start(TrainingPlan::kElements);
  EXPECT_TRUE(weights->parameters[0]
                  ->read(0, TrainingPlan::kElements, DType::F32, DType::F32, start.data())
                  .ok());
  return start;
}

void compare_with_reference(int world, int accumulation, bool poison, int hosts = 1) {
  SCOPED_TRACE(world * 100 + accumulation);
  const ScratchFolder folder;
  const TrainingPlan hand(world, accumulation, true, plan::Space::Device, hosts);
  train::TrainOptions options;
  options.steps = 5;
  options.poison = poison;
  options.save = folder / "save/deeper/model.safetensors";
  options.dump_gradients = folder / "gradients";
  options.metrics = folder / "run.jsonl";
  options.trace = folder / "trace.json";
  const JobResult job = run_job(hand.plan, options);
  for (size_t rank = 0; rank < job.statuses.size(); ++rank) {
    ASSERT_TRUE(job.statuses[rank].ok()) << job.statuses[rank].to_string();
    EXPECT_EQ(job.outcomes[rank].steps, 5);
    EXPECT_FALSE(job.outcomes[rank].stopped);
  }
  std::vector<double> gradient, losses;
  const auto expected = reference(drawn_start(), hand, 5, &gradient, &losses);
  const auto w = read_tensor(options.save, "model.w");
  const auto g = read_tensor(options.dump_gradients + "/gradients.safetensors", "model.w");
  ASSERT_EQ(w.size(), expected.size());
  ASSERT_EQ(g.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(w[i], expected[i], 2e-5) << i;
    ASSERT_NEAR(g[i], gradient[i], 1e-6) << i;
  }
  std::istringstream lines(read_text(options.metrics));
  std::string line;
  std::vector<base::JsonValue> objects;
  while (std::getline(lines, line)) objects.push_back(*base::parse_json_value(line, "metrics"));
  ASSERT_EQ(objects.size(), 6u);
  EXPECT_EQ(*objects[0].find("plan")->to_string(), "feed");
  EXPECT_EQ(*objects[0].find("world")->to_integer(), world);
  for (int64_t step = 1; step <= 5; ++step) {
    const auto& object = objects[static_cast<size_t>(step)];
    EXPECT_EQ(*object.find("step")->to_integer(), step);
    EXPECT_NEAR(*object.find("loss")->to_real(), losses[static_cast<size_t>(step - 1)], 1e-6);
    EXPECT_EQ(*object.find("lr")->to_real(), 0.01);
    EXPECT_EQ(*object.find("tokens")->to_integer(), world * accumulation);
    EXPECT_EQ(*object.find("wire_bytes")->find("reduce_scatter")->to_integer() > 0, world > 1);
    const double collective = *object.find("collective_ms")->to_real();
    EXPECT_GT(collective, 0);
    EXPECT_LT(collective, *object.find("step_ms")->to_real());
    EXPECT_GT(*object.find("exposed_ms")->to_real(), 0);
  }
  auto trace = base::parse_json_value(read_text(options.trace), "trace");
  ASSERT_TRUE(trace.ok()) << trace.status().to_string();
  EXPECT_EQ(*trace->find("otherData")->find("schema")->to_string(), "dcrun-trace/1");
  EXPECT_EQ(*trace->find("otherData")->find("plan")->to_string(), "feed");
  // Every step says which it was, and where in it each micro-batch was.
  int updates = 0, sums = 0;
  int64_t steps = 0, runs = 0;
  for (const auto& event : trace->find("traceEvents")->items()) {
    const std::string name = *event.find("name")->to_string();
    if (name != "dc.adamw" && name != "dc.accumulate") continue;
    const base::JsonValue& args = *event.find("args");
    if (name == "dc.adamw") {
      ++updates;
      steps += *args.find("step")->to_integer();
      EXPECT_EQ(*args.find("run")->to_integer(), accumulation - 1);
    } else {
      ++sums;
      runs += *args.find("run")->to_integer();
    }
  }
  EXPECT_EQ(updates, 5 * world);
  EXPECT_EQ(steps, (1 + 2 + 3 + 4 + 5) * world);
  EXPECT_EQ(sums, 5 * accumulation * world);
  EXPECT_EQ(runs, 5 * accumulation * (accumulation - 1) / 2 * world);
}

TEST(Train, OneRank) { compare_with_reference(1, 1, false); }
TEST(Train, OneRankAccumulating) { compare_with_reference(1, 4, true); }
TEST(Train, TwoRanks) { compare_with_reference(2, 2, false); }
TEST(Train, ThreeRanksUnevenShards) { compare_with_reference(3, 1, true); }
TEST(Train, TwoHostsOfTwoRanks) { compare_with_reference(4, 2, true, 2); }
TEST(Train, TwoHostsOfThreeRanks) { compare_with_reference(6, 1, true, 2); }

// Parameter and moments that live elsewhere give the same bits.
TEST(Train, StateMayLiveOutsideTheDevice) {
  for (const int world : {1, 2, 3}) {
    for (const int accumulation : {1, 4}) {
      std::vector<float> expected;
      for (const auto home : {plan::Space::Device, plan::Space::Host, plan::Space::Disk}) {
        SCOPED_TRACE(std::to_string(world) + " ranks, space " +
                     std::to_string(static_cast<int>(home)));
        const ScratchFolder folder;
        train::TrainOptions options;
        options.steps = 5;
        options.poison = true;
        options.save = folder / "save/model.safetensors";
        options.metrics = folder / "run.jsonl";
        options.offload_dir = folder / "";
        const TrainingPlan hand(world, accumulation, true, home);
        for (const Status& status : run_job(hand.plan, options).statuses)
          ASSERT_TRUE(status.ok()) << status.to_string();
        const auto w = read_tensor(options.save, "model.w");
        if (expected.empty()) expected = w;
        EXPECT_EQ(w, expected);
        const auto header = base::parse_json_value(
            read_text(options.metrics).substr(0, read_text(options.metrics).find('\n')), "header");
        EXPECT_EQ(*header->find("disk_bytes")->to_integer(), hand.plan.arena_bytes[2]);
      }
    }
  }
}

TEST(Train, StateOnDiskNeedsAFolder) {
  const TrainingPlan hand(2, 1, true, plan::Space::Disk);
  for (const auto& [folder, code] :
       {std::pair{"", 64}, std::pair{"/there/is/no/such/folder", 73}}) {
    train::TrainOptions options;
    options.offload_dir = folder;
    const JobResult job = run_job(hand.plan, options);
    for (const Status& status : job.statuses) {
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(base::exit_code(status.kind()), code) << status.to_string();
    }
    // The first of ranks that fail alike says why.
    EXPECT_NE(job.statuses[0].sentence().find("--offload-dir"), std::string::npos);
  }
}

TEST(Train, ASavedStateIsTheNextRunsStart) {
  const ScratchFolder folder;
  train::TrainOptions options;
  options.save = folder / "one/model.safetensors";
  ASSERT_TRUE(run_job(TrainingPlan(3, 1).plan, options).statuses[0].ok());
  train::TrainOptions next;
  next.weights = folder / "one/model.safetensors";
  next.save = folder / "two/model.safetensors";
  TrainingPlan still(2, 1);
  still.plan.optimizer.groups[0].lr = 0;
  ASSERT_TRUE(run_job(still.plan, next).statuses[0].ok());
  EXPECT_EQ(read_tensor(next.weights, "model.w"),
            read_tensor(folder / "two/model.safetensors", "model.w"));
  auto file = base::archive::SafetensorsFile::open(next.weights);
  EXPECT_EQ(file->metadata().at("aliases"), R"({"model.tied":"model.w"})");
}

// Samples of x and loss; sample `bad` has a NaN in x or in the loss.
std::string poisoned_data(const ScratchFolder& folder, int64_t bad, bool in_loss) {
  auto layout = base::archive::layout_safetensors(
      {{"x", DType::F32, {8, 70}, 0, 0}, {"loss", DType::F32, {8}, 0, 0}}, {});
  std::string bytes = layout->header;
  bytes.resize(static_cast<size_t>(layout->file_bytes), '\0');
  const float nan = NAN;
  const int64_t at = in_loss ? layout->tensors[1].offset + bad * 4
                             : layout->tensors[0].offset + (bad * 70 + 9) * 4;
  std::memcpy(bytes.data() + at, &nan, 4);
  return folder.write("bad.safetensors", bytes);
}

TEST(Train, ANonFiniteNumberIsNamedAndChangesNothing) {
  for (const bool in_loss : {false, true}) {
    const ScratchFolder folder;
    train::TrainOptions options;
    options.steps = 4;
    options.data = {poisoned_data(folder, 5, in_loss)};  // rank 1 of step 3
    options.save = folder / "saved/model.safetensors";
    const JobResult job = run_job(TrainingPlan(2, 1).plan, options);
    train::TrainOptions before = options;
    before.steps = 2;
    before.save = folder / "before/model.safetensors";
    ASSERT_TRUE(run_job(TrainingPlan(2, 1).plan, before).statuses[0].ok());
    for (const Status& status : job.statuses) {
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.kind(), ErrorKind::NonFinite);
      const std::string who = in_loss ? "the loss" : "the gradient of 'model.w'";
      EXPECT_NE(status.sentence().find(who + " is not finite in step 3"), std::string::npos)
          << status.sentence();
    }
    EXPECT_EQ(read_tensor(folder / "saved/model.safetensors", "model.w"),
              read_tensor(folder / "before/model.safetensors", "model.w"));
  }
}

// All numbers of the steps are finite but the state is not: the infinity comes from the file.
TEST(Train, AStateThatIsNotFiniteIsNeverWritten) {
  const ScratchFolder folder;
  const TrainingPlan hand(2, 1);
  auto layout = base::archive::layout_safetensors({{"model.w", DType::F32, {7, 10}, 0, 0}}, {});
  std::string bytes = layout->header;
  bytes.resize(static_cast<size_t>(layout->file_bytes), '\0');
  const float infinite = INFINITY;
  std::memcpy(bytes.data() + layout->tensors[0].offset + int64_t{69} * 4, &infinite,
              4);  // rank 1's
  train::TrainOptions options;
  options.weights = folder.write("bad.safetensors", bytes);
  options.save = folder / "saved/model.safetensors";
  std::filesystem::create_directory(folder / "saved");
  const std::string older = folder.write("saved/model.safetensors", "older");
  options.overwrite = true;
  const JobResult job = run_job(hand.plan, options);
  for (const Status& status : job.statuses) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.kind(), ErrorKind::NonFinite);
    EXPECT_NE(status.sentence().find("nothing was written"), std::string::npos)
        << status.sentence();
  }
  EXPECT_NE(job.statuses[1].sentence().find("model.w"), std::string::npos);
  EXPECT_EQ(read_text(older), "older");
}

TEST(Train, OneRanksTroubleReachesAll) {
  const ScratchFolder folder;
  train::TrainOptions options;
  options.save = folder.write("file", "") + "/below";
  const JobResult job = run_job(TrainingPlan(2, 1).plan, options);
  EXPECT_EQ(base::exit_code(job.statuses[0].kind()), 73);
  EXPECT_EQ(base::exit_code(job.statuses[1].kind()), 73);
  EXPECT_NE(job.statuses[1].sentence().find("rank 0"), std::string::npos);
}

TEST(Train, RanksWithDifferentPlansSaySo) {
  const TrainingPlan hand(3, 1);
  on_ranks(3, {}, [&](comm::ProcessGroup& job, int rank) {
    const plan::Loaded loaded{hand.plan, rank == 1 ? "other" : "same"};
    const comm::LaunchInfo launch{comm::Launcher::Single, rank, 3, rank, 3, "test", {}};
    train::TrainOptions options;
    options.weights = "init:0";
    options.data = {"synthetic"};
    options.settings.optimizer = hand.plan.optimizer;
    const auto outcome = train::train(loaded, job, launch, options);
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(base::exit_code(outcome.status().kind()), 76);
    EXPECT_NE(outcome.status().sentence().find("rank 1"), std::string::npos);
  });
}

}  // namespace
}  // namespace dc::runtime::test
