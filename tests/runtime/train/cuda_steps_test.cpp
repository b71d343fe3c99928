// What a step asks of a GPU's driver, on its double (tests/double).
#include <dlfcn.h>

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/train/loop.h"
#include "runtime/train/weights.h"
#include "tests/runtime/kernel/cuda/kernel_cache.h"
#include "tests/runtime/train/training_plan.h"

namespace dc::runtime::test {
namespace {

using Calls = std::map<std::string, int>;

int calls_of(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  static const auto count = reinterpret_cast<int (*)(const char*)>(dlsym(driver, "doubleCallsOf"));
  return count != nullptr ? count(name) : -1;
}
Calls all_calls() {
  Calls calls;
  for (const char* const name :
       {"cuMemAlloc", "cuMemHostAlloc", "cuMemcpy", "cuMemcpyAsync", "cuMemsetD8Async",
        "cuStreamSynchronize", "cuStreamWaitEvent", "cuStreamBeginCapture", "cuGraphInstantiate",
        "cuGraphLaunch", "cuEventCreate", "cuEventRecord", "cuModuleLoadData", "cuLaunchKernel"})
    calls[name] = calls_of(name);
  return calls;
}

// Notes whose inputs are made, after how many launches of programs and how many waits for them.
class NotedData final : public train::DataSource {
 public:
  struct Fill {
    int64_t step, micro_batch;
    int launches, waits;
  };
  explicit NotedData(std::unique_ptr<train::DataSource> real) : real_(std::move(real)) {}
  int64_t steps_per_epoch() const override { return real_->steps_per_epoch(); }
  int64_t epoch(int64_t step) const override { return real_->epoch(step); }
  checkpoint::DataPosition position(int64_t steps) const override { return real_->position(steps); }
  base::Status check(int64_t step) override { return real_->check(step); }
  base::Status fill(int64_t step, int64_t micro_batch,
                    std::span<const kernel::BoundTensor> inputs) override {
    fills.push_back(
        {step, micro_batch, calls_of("cuGraphLaunch"), calls_of("cuStreamSynchronize")});
    return real_->fill(step, micro_batch, inputs);
  }
  std::vector<Fill> fills;

 private:
  std::unique_ptr<train::DataSource> real_;
};

using Ahead = train::Loop::Ahead;

constexpr int64_t kSteps = 5;
struct Trained {
  std::vector<Calls> calls;  // by step
  // Copies that were issued from the end of a step until the host had nothing left to issue before
  // it waits for the first micro-batch of the next one.
  std::vector<int> copies_between;
  std::vector<double> losses;
  std::vector<NotedData::Fill> fills;
};

// A rank alone has no collectives. `ahead`: what is done while the GPU works, as far as steps go.
Trained train_steps(int accumulation, Ahead ahead) {
  Trained trained;
  TrainingPlan hand(1, accumulation);
  for (plan::Program& program : hand.plan.programs)
    std::erase_if(program.instructions, [](const plan::Instruction& instruction) {
      return instruction.kind == plan::InstructionKind::Collective;
    });
  comm::CommOptions options;
  options.device = *device::open_device(base::DeviceKind::Cuda);
  on_ranks(1, options, [&](comm::ProcessGroup& job, int rank) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    auto executor = exec::Executor::prepare(hand.plan, job, *slab, {});
    DC_ASSERT_OK(executor.status());
    auto drawn =
        train::DataSource::open({"synthetic"}, train::DataRequest::of(hand.plan, rank, {}));
    DC_ASSERT_OK(drawn.status());
    NotedData data(std::move(*drawn));
    const train::RunSettings settings{hand.plan.optimizer, 1.0};
    auto loop = train::Loop::create(hand.plan, **executor, data, settings, rank);
    DC_ASSERT_OK(loop.status());
    for (int64_t step = 0; step < kSteps; ++step) {
      const Calls before = all_calls();
      bool is_first = true;
      DC_ASSERT_OK(loop->run(step, false, [&](bool is_last) {
        if (std::exchange(is_first, false))
          trained.copies_between.push_back(calls_of("cuMemcpyAsync") - before.at("cuMemcpyAsync"));
        return is_last && step + 1 == kSteps ? Ahead::Nothing : ahead;
      }));
      EXPECT_TRUE(loop->result().finite);
      trained.losses.push_back(loop->result().loss);
      trained.calls.emplace_back();
      for (const auto& [name, count] : all_calls())
        if (count != before.at(name)) trained.calls.back()[name] = count - before.at(name);
    }
    trained.fills = data.fills;
  });
  return trained;
}

// Of each of the steps behind the first, which records the graph.
void expect_calls(int accumulation, const Calls& expected) {
  for (const Ahead ahead : {Ahead::Nothing, Ahead::Fill, Ahead::Upload}) {
    const Trained trained = train_steps(accumulation, ahead);
    for (size_t step = 1; step + 1 < trained.calls.size(); ++step)
      EXPECT_EQ(trained.calls[step], expected) << "step " << step + 1;
  }
}

// Copies: hyperparameters, the sum of the loss, the request to stop; the random state and the
// inputs x and loss; the result.
TEST(CudaSteps, AreOneLaunchOneWaitAndCopies) {
  expect_calls(1, {{"cuMemcpyAsync", 7}, {"cuGraphLaunch", 1}, {"cuStreamSynchronize", 1}});
}

TEST(CudaSteps, EachMicroBatchIsOneLaunchOneWaitAndItsCopies) {
  expect_calls(3, {{"cuMemcpyAsync", 3 + 3 * 4}, {"cuGraphLaunch", 3}, {"cuStreamSynchronize", 3}});
}

TEST(CudaSteps, InputsAreMadeWhileTheGpuWorksOnTheOnesBefore) {
  for (const int accumulation : {1, 3}) {
    const Trained ahead = train_steps(accumulation, Ahead::Fill),
                  late = train_steps(accumulation, Ahead::Nothing);
    EXPECT_EQ(ahead.losses, late.losses);
    ASSERT_EQ(ahead.fills.size(), static_cast<size_t>(kSteps * accumulation));
    ASSERT_EQ(late.fills.size(), ahead.fills.size());
    for (size_t i = 0; i < ahead.fills.size(); ++i) {
      const NotedData::Fill &one = ahead.fills[i], &first = ahead.fills[0];
      const NotedData::Fill &other = late.fills[i], &other_first = late.fills[0];
      EXPECT_EQ(one.step * accumulation + one.micro_batch, static_cast<int64_t>(i));
      EXPECT_EQ(one.launches - first.launches, static_cast<int>(i));
      EXPECT_EQ(other.launches - other_first.launches, static_cast<int>(i));
      EXPECT_EQ(one.waits - first.waits, other.waits - other_first.waits - (i > 0 ? 1 : 0));
    }
  }
}

// Then only the request to stop and the result are copied between a step's end and the next wait.
// Pauses of the double would show a copy of the host that is written while a stream reads it.
TEST(CudaSteps, UploadsAreIssuedWhileTheGpuWorksOnTheMicroBatchBefore) {
  for (const int accumulation : {1, 3}) {
    const Trained ahead = train_steps(accumulation, Ahead::Upload),
                  late = train_steps(accumulation, Ahead::Nothing);
    EXPECT_EQ(ahead.losses, late.losses);
    ASSERT_EQ(late.copies_between.size(), static_cast<size_t>(kSteps));
    ASSERT_EQ(ahead.copies_between.size(), static_cast<size_t>(kSteps));
    for (size_t step = 1; step < ahead.copies_between.size(); ++step) {  // the first records
      EXPECT_EQ(late.copies_between[step], 7) << step;
      EXPECT_EQ(ahead.copies_between[step], 2) << step;
    }
  }
}

}  // namespace
}  // namespace dc::runtime::test
