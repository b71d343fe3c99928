// Plans with collectives between GPUs, by NCCL and by CUDA IPC, on the doubles of the driver, NVRTC
// and NCCL (tests/double), next to the local communicator on the CPU: equal bits.
#include <gtest/gtest.h>

#include <random>

#include "runtime/comm/gpu_ranks.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/open_gpu.h"
#include "tests/runtime/comm/conformance.h"
#include "tests/runtime/exec/hand_plan.h"
#include "tests/runtime/kernel/cuda/kernel_cache.h"

namespace dc::runtime {
namespace {

using base::DType;
using plan::CollectiveKind;
using test::HandPlan;

constexpr int kStreams = 3;
constexpr int64_t kElements = 1001;

// Collectives of every kind, in place and not, fused and not, of f32 and bf16, on two streams of
// their own, with copies on compute between them; each waits for the one before it in the plan.
class RandomCollectives : public HandPlan {
 public:
  RandomCollectives(int world, uint32_t seed) : HandPlan(world, kStreams), random_(seed) {
    plan.groups = {{plan::kAllAxes, 1}, {plan::kAllAxes, 2}};
    shard_ = (kElements + world - 1) / world;
    const auto shards = [&](const std::string& name, DType dtype) {
      const int32_t padded = tensor(name, dtype, {world * shard_});
      own_.push_back(own_range(padded, shard_));
      plan.tensors[static_cast<size_t>(padded)].sizes = {kElements};
      values.push_back(padded);
    };
    for (const char* name : {"a", "b", "c"}) shards(name, DType::F32);
    for (const char* name : {"d", "e"}) shards(name, DType::BF16);
    for (int i = 0; i < 24; ++i) step();
    move_to(0);
  }
  std::vector<int32_t> values;

 private:
  size_t draw(size_t below) { return random_() % below; }
  void move_to(int32_t stream) {
    if (stream == stream_) return;
    signal(plan.events, stream_);
    wait(plan.events - 1, stream);
    stream_ = stream;
  }
  plan::Instruction& collective_on(int32_t group, CollectiveKind kind, int32_t input,
                                   int32_t output) {
    move_to(group + 1);
    plan::Instruction& made = collective(kind, input, output, kElements, shard_);
    made.group = group;
    made.stream = group + 1;
    return made;
  }
  void step() {
    const auto group = static_cast<int32_t>(draw(2));
    const size_t f = draw(3), other = (f + 1) % 3, h = 3 + draw(2);
    switch (draw(6)) {
      case 0:
        move_to(0);
        copy(values[f], values[other], 0);
        break;
      case 1:
        collective_on(group, CollectiveKind::AllGather, own_[f], values[f]);
        break;
      case 2:
        collective_on(group, CollectiveKind::ReduceScatter, values[f], own_[f]);
        break;
      case 3:
        collective_on(group, CollectiveKind::AllReduce, values[f], values[f]);
        break;
      case 4: {  // fused, of two types
        plan::Instruction& made =
            collective_on(group, CollectiveKind::AllReduce, values[h], values[f]);
        made.buffers.push_back({values[other], values[other], kElements, shard_});
        made.reads.push_back(values[other]);
        made.writes.push_back(values[other]);
        break;
      }
      default: {
        plan::Instruction& made =
            collective_on(group, CollectiveKind::AllGather, own_[h], values[h]);
        made.buffers.push_back({own_[other], values[other], kElements, shard_});
        made.reads.push_back(own_[other]);
        made.writes.push_back(values[other]);
        break;
      }
    }
  }

  std::minstd_rand random_;
  std::vector<int32_t> own_;
  int64_t shard_ = 0;
  int32_t stream_ = 0;
};

std::vector<std::byte> first_bytes(DType dtype, int rank, size_t value) {
  std::vector<std::byte> bytes(static_cast<size_t>(kElements * base::byte_size(dtype)));
  for (int64_t i = 0; i < kElements; ++i)
    conformance::store(bytes.data() + i * base::byte_size(dtype), dtype, rank, i,
                       static_cast<int>(value));
  return bytes;
}

// The bytes of all values of a rank after two steps.
std::vector<std::byte> run_steps(const RandomCollectives& hand, comm::ProcessGroup& job) {
  std::vector<std::byte> all;
  const auto run = [&] {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    const auto executor = exec::Executor::prepare(hand.plan, job, *slab, {});
    DC_ASSERT_OK(executor.status());
    const auto at = [&](size_t v) {
      return static_cast<std::byte*>((*executor)->tensor(hand.values[v]).data);
    };
    const auto dtype = [&](size_t v) {
      return hand.plan.tensors[static_cast<size_t>(hand.values[v])].dtype;
    };
    for (size_t v = 0; v < hand.values.size(); ++v)
      EXPECT_TRUE(
          job.device().upload(at(v), first_bytes(dtype(v), job.control().rank().v, v)).ok());
    DC_ASSERT_OK(job.control().barrier());
    for (int step = 0; step < 2; ++step) DC_ASSERT_OK((*executor)->run(0));
    DC_ASSERT_OK((*executor)->finish());
    for (size_t v = 0; v < hand.values.size(); ++v) {
      std::vector<std::byte> bytes = first_bytes(dtype(v), 0, v);
      EXPECT_TRUE(job.device().download(bytes, at(v)).ok());
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    DC_ASSERT_OK(job.control().barrier());
  };
  run();
  return all;
}

// How many ranks, and what is asked for: all have the same GPU.
class CudaRanks : public testing::TestWithParam<std::tuple<int, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Ranks, CudaRanks,
                         testing::Combine(testing::Values(2, 3), testing::Values("tcp", "auto")));

TEST_P(CudaRanks, CollectivesGiveTheBitsOfTheCpu) {
  const int world = std::get<0>(GetParam());
  const char* const backend = std::get<1>(GetParam());
  const bool by_nccl = std::string_view(backend) == "tcp";
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    const RandomCollectives hand(world, seed);
    std::vector<std::vector<std::byte>> on_cpu(static_cast<size_t>(world)), on_gpu = on_cpu;
    test::on_ranks(world, {}, [&](comm::ProcessGroup& job, int rank) {
      on_cpu[static_cast<size_t>(rank)] = run_steps(hand, job);
    });
    auto hosts = comm::connect_threads(world, {});
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      threads.emplace_back([&, rank] {
        auto job = comm::add_gpus(std::move(hosts[rank]),
                                  exec::open_gpu(0, std::chrono::milliseconds(60'000)), backend);
        DC_ASSERT_OK(job.status());
        EXPECT_EQ((*job)->name(), by_nccl ? "nccl" : "ipc");
        on_gpu[rank] = run_steps(hand, **job);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t rank = 0; rank < on_cpu.size(); ++rank) {
      EXPECT_FALSE(on_cpu[rank].empty());
      EXPECT_EQ(on_gpu[rank], on_cpu[rank]) << "seed " << seed << " rank " << rank;
    }
  }
}

}  // namespace
}  // namespace dc::runtime
