// What a step asks of a GPU's driver, on its double (tests/double).
#include <dlfcn.h>

#include <gtest/gtest.h>

#include <map>
#include <string>

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

// Of each of the steps behind the first, which records the graph. A rank alone has no collectives.
void expect_calls(int accumulation, const Calls& expected) {
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
    auto data = train::DataSource::open({"synthetic"}, train::DataRequest::of(hand.plan, rank, {}));
    DC_ASSERT_OK(data.status());
    const train::RunSettings settings{hand.plan.optimizer, 1.0};
    auto loop = train::Loop::create(hand.plan, **executor, **data, settings, rank);
    DC_ASSERT_OK(loop.status());
    for (int64_t step = 0; step < 4; ++step) {
      const Calls before = all_calls();
      DC_ASSERT_OK(loop->run(step));
      EXPECT_TRUE(loop->result().finite);
      if (step == 0) continue;
      Calls made;
      for (const auto& [name, count] : all_calls())
        if (count != before.at(name)) made[name] = count - before.at(name);
      EXPECT_EQ(made, expected) << "step " << step + 1;
    }
  });
}

// Copies: hyperparameters, the sum of the loss, the request to stop; the random state and the
// inputs x and loss; the result.
TEST(CudaSteps, AreOneLaunchOneWaitAndCopies) {
  expect_calls(1, {{"cuMemcpyAsync", 7}, {"cuGraphLaunch", 1}, {"cuStreamSynchronize", 1}});
}

TEST(CudaSteps, EachMicroBatchIsOneLaunchOneWaitAndItsCopies) {
  expect_calls(3, {{"cuMemcpyAsync", 3 + 3 * 4}, {"cuGraphLaunch", 3}, {"cuStreamSynchronize", 3}});
}

}  // namespace
}  // namespace dc::runtime::test
