// After warm-up a step of a plan without aten instructions allocates nothing, on any stream. The
// malloc family is replaced to see it.
#include <malloc.h>

#include <atomic>

#include "runtime/exec/trace.h"
#include "runtime/train/loop.h"
#include "runtime/train/train.h"
#include "runtime/train/weights.h"
#include "tests/runtime/train/scratch_folder.h"
#include "tests/runtime/train/training_plan.h"

// NOLINTBEGIN(bugprone-reserved-identifier): the C library's names
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};
void seen() {
  if (counting.load(std::memory_order_relaxed)) ++allocations;
}
}  // namespace

extern "C" {
void* malloc(size_t bytes) {
  seen();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  seen();
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  seen();
  return __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  seen();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  *out = memalign(alignment, bytes);
  return *out ? 0 : 12;
}
}

namespace dc::runtime::test {
namespace {

TEST(Allocation, TheCounterCounts) {
  counting = true;
  void* volatile block = malloc(10);
  counting = false;
  free(block);
  EXPECT_GE(allocations.exchange(0), 1);
}

void allocate_nothing(plan::Space home) {
  const TrainingPlan hand(2, 3, true, home);
  const ScratchFolder folder;
  on_ranks(2, {}, [&](comm::ProcessGroup& job, int rank) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    auto outside =
        memory::OffloadMemory::create(hand.plan, rank, folder / "", device::cpu_device());
    DC_ASSERT_OK(outside.status());
    exec::TraceRecorder trace(hand.plan, rank, 100);  // fewer records than the steps make
    exec::ExecutorOptions options;
    options.outside = &*outside;
    options.trace = &trace;
    auto executor = exec::Executor::prepare(hand.plan, job, *slab, options);
    DC_ASSERT_OK(executor.status());
    auto data = train::DataSource::open({"synthetic"}, train::DataRequest::of(hand.plan, rank, {}));
    DC_ASSERT_OK(data.status());
    train::RunSettings settings;
    settings.optimizer = hand.plan.optimizer;
    auto loop = train::Loop::create(hand.plan, **executor, **data, settings, rank);
    DC_ASSERT_OK(loop.status());
    const auto never = [](bool) { return train::Loop::Ahead::Nothing; };
    for (int64_t step = 0; step < 3; ++step) DC_ASSERT_OK(loop->run(step, false, never));
    DC_ASSERT_OK(job.control().barrier());
    counting = true;
    double sum = 0;
    for (int64_t step = 3; step < 20; ++step) {
      DC_ASSERT_OK(loop->run(step, false, never));
      sum += loop->result().loss;
      sum += static_cast<double>((*executor)->communication_time().exposed_ns);
    }
    DC_ASSERT_OK(job.control().barrier());
    counting = false;
    EXPECT_GT(sum, 0);
    EXPECT_GT(trace.dropped(), 0);
  });
  EXPECT_EQ(allocations.load(), 0);
}

TEST(Allocation, AStepAllocatesNothing) { allocate_nothing(plan::Space::Device); }
TEST(Allocation, NorDoesOneThatOffloadsToTheHost) { allocate_nothing(plan::Space::Host); }
TEST(Allocation, NorDoesOneThatOffloadsToDisk) { allocate_nothing(plan::Space::Disk); }

}  // namespace
}  // namespace dc::runtime::test
