// Plans on a GPU's streams: on the double of the driver (tests/double), next to the CPU.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "runtime/exec/executor.h"
#include "tests/runtime/exec/hand_plan.h"

namespace dc::runtime {
namespace {

using base::Status;
using test::HandPlan;
using test::on_ranks;

constexpr int64_t kElements = 64;
constexpr int kStreams = 3;

// Copies between values, each on a stream drawn at random, which waits for the streams that wrote
// what it reads and used what it overwrites. Values start as their own numbers.
class RandomCopies : public HandPlan {
 public:
  explicit RandomCopies(uint32_t seed) : HandPlan(1, kStreams), random_(seed) {
    constexpr size_t kValues = 6;
    for (size_t v = 0; v < kValues; ++v)
      values.push_back(tensor("v" + std::to_string(v), base::DType::F32, {kElements}));
    for (int i = 0; i < 80; ++i) {
      const size_t from = draw(kValues), to = draw(kValues);
      if (from != to) step(from, to, static_cast<int32_t>(draw(kStreams)));
    }
    for (int32_t s = 1; s < kStreams; ++s) follow(0, {s, done_[static_cast<size_t>(s)]});
  }
  std::vector<int32_t> values;

 private:
  struct Use {  // the count-th copy of a stream
    int32_t stream = 0;
    int count = 0;
  };
  size_t draw(size_t below) { return random_() % below; }

  void step(size_t from, size_t to, int32_t stream) {
    follow(stream, writers_[from]);
    follow(stream, writers_[to]);
    for (int32_t s = 0; s < kStreams; ++s)
      follow(stream, {s, readers_[to][static_cast<size_t>(s)]});
    copy(values[from], values[to], stream);
    const int count = ++done_[static_cast<size_t>(stream)];
    writers_[to] = {stream, count};
    readers_[from][static_cast<size_t>(stream)] = count;
  }
  void follow(int32_t stream, const Use& use) {
    int& known = known_[static_cast<size_t>(stream)][static_cast<size_t>(use.stream)];
    if (use.stream == stream || use.count <= known) return;
    signal(plan.events, use.stream);
    wait(plan.events - 1, stream);
    known = done_[static_cast<size_t>(use.stream)];
  }

  std::minstd_rand random_;
  std::array<int, kStreams> done_{};
  std::array<std::array<int, kStreams>, kStreams> known_{};
  std::array<Use, 8> writers_{};
  std::array<std::array<int, kStreams>, 8> readers_{};
};

// All values after three steps.
std::vector<float> after_steps(const RandomCopies& hand, base::DeviceKind kind) {
  std::vector<float> all;
  comm::CommOptions options;
  options.device = *device::open_device(kind);
  on_ranks(1, options, [&](comm::ProcessGroup& job, int) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    const auto executor = exec::Executor::prepare(hand.plan, job, *slab, {});
    DC_ASSERT_OK(executor.status());
    std::array<float, kElements> part{};
    const auto bytes = [&] { return std::as_writable_bytes(std::span(part)); };
    for (size_t v = 0; v < hand.values.size(); ++v) {
      part.fill(static_cast<float>(v));
      job.device().upload(static_cast<std::byte*>((*executor)->tensor(hand.values[v]).data),
                          bytes());
    }
    for (int run = 0; run < 3; ++run) DC_ASSERT_OK((*executor)->run(0));
    for (const int32_t value : hand.values) {
      job.device().download(bytes(),
                            static_cast<const std::byte*>((*executor)->tensor(value).data));
      all.insert(all.end(), part.begin(), part.end());
    }
  });
  return all;
}

TEST(CudaExecutor, StreamsDoWhatTheyDoOnTheCpu) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const RandomCopies hand(seed);
    const std::vector<float> expected = after_steps(hand, base::DeviceKind::Cpu);
    ASSERT_EQ(expected.size(), hand.values.size() * kElements);
    EXPECT_EQ(after_steps(hand, base::DeviceKind::Cuda), expected) << "seed " << seed;
  }
}

TEST(CudaExecutor, RefusesKernels) {
  HandPlan hand(1);
  const int32_t value = hand.tensor("value", base::DType::F32, {4});
  hand.native("dc.zero", {value});
  comm::CommOptions options;
  options.device = *device::open_device(base::DeviceKind::Cuda);
  on_ranks(1, options, [&](comm::ProcessGroup& job, int) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    const auto executor = exec::Executor::prepare(hand.plan, job, *slab, {});
    ASSERT_FALSE(executor.ok());
    EXPECT_EQ(executor.status().code(), "DC6624");
  });
}

// A failure of the GPU is the failure of the run, and stays; in another process.
TEST(CudaExecutorDeathTest, AFailureOfTheGpuEndsTheRun) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("DOUBLE_FAIL", "cuMemcpyAsync:5:700", 1);
        const RandomCopies hand(1);
        comm::CommOptions options;
        options.device = *device::open_device(base::DeviceKind::Cuda);
        on_ranks(1, options, [&](comm::ProcessGroup& job, int) {
          auto slab = job.allocate(hand.plan.arena_bytes[0]);
          const auto executor = exec::Executor::prepare(hand.plan, job, *slab, {});
          const Status first = (*executor)->run(0), second = (*executor)->run(0);
          std::fputs(first.to_string().c_str(), stderr);
          const bool same = first.code() == second.code();
          std::_Exit(same ? base::exit_code(first.kind()) : 1);
        });
      },
      ::testing::ExitedWithCode(69), "DC6143.*CUDA_ERROR_ILLEGAL_ADDRESS");
}

}  // namespace
}  // namespace dc::runtime
