// The nccl communicator on the doubles of the driver, NVRTC and NCCL (tests/double), ranks as
// threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/nccl.h"
#include "runtime/comm/nccl_communicator.h"
#include "runtime/comm/nccl_pieces.h"
#include "runtime/exec/open_gpu.h"
#include "tests/runtime/comm/conformance.h"
#include "tests/runtime/comm/groups.h"
#include "tests/runtime/comm/rank_threads.h"
#include "tests/runtime/kernel/cuda/kernel_cache.h"

namespace dc::runtime {
namespace {

using base::DType;
using base::Status;
using std::chrono::milliseconds;
using Faults = std::vector<std::string>;

// Runs `body` on every rank; what went wrong on any.
Faults on_gpus(int world, const std::function<Faults(comm::ProcessGroup&)>& body) {
  return conformance::on_rank_threads(world, [&](conformance::Hosts hosts) -> Faults {
    auto job = comm::add_nccl(std::move(hosts), exec::open_gpu(0, milliseconds(60'000)));
    return job.ok() ? body(**job) : Faults{job.status().to_string()};
  });
}

class Nccl : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Nccl, testing::Values(2, 3));

TEST_P(Nccl, DoesWhatEveryCommunicatorDoes) {
  EXPECT_THAT(on_gpus(GetParam(), [](auto& job) { return conformance::run_rank(job, true); }),
              testing::IsEmpty());
}

TEST(NcclGroups, AreOfSomeOfTheRanks) {
  EXPECT_THAT(on_gpus(4, [](auto& job) { return conformance::run_groups(job); }),
              testing::IsEmpty());
}

TEST(NcclGroups, CountWhatGoesToOtherHosts) {
  EXPECT_THAT(on_gpus(4, [](auto& job) { return conformance::run_across_hosts(job); }),
              testing::IsEmpty());
}

// Two rounds and a bit for the first rank, less for the other.
TEST(NcclReduction, GoesInRoundsWhereItIsLargerThanItsRoom) {
  constexpr int64_t kShard = comm::kNcclRoom / 2 + 32, kElements = kShard + kShard / 2;
  const Faults faults = on_gpus(2, [&](comm::ProcessGroup& job) -> Faults {
    auto slab = job.allocate(kElements * 4);
    auto communicator = job.open_communicator();
    if (!slab.ok() || !communicator.ok()) return {"no communicator"};
    const int rank = job.control().rank().v;
    std::vector<float> values(static_cast<size_t>(kElements));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = conformance::number(rank, static_cast<int64_t>(i), 1);
    Status status = job.device().upload(slab->base, std::as_bytes(std::span(values)));
    const auto stream = job.device().make_stream();
    const comm::CollectiveBuffer whole{
        {slab->base, 0}, {slab->base, 0}, DType::F32, kElements, kShard};
    if (status.ok()) status = (*communicator)->all_reduce({&whole, 1}, *stream);
    if (status.ok()) status = stream->drain();
    if (status.ok())
      status = job.device().download(std::as_writable_bytes(std::span(values)), slab->base);
    if (!status.ok()) return {status.to_string()};
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] != conformance::expected_sum(DType::F32, 2, static_cast<int64_t>(i), 1))
        return {"element " + std::to_string(i) + " is wrong"};
    }
    return {};
  });
  EXPECT_THAT(faults, testing::IsEmpty());
}

// Each element of a rank's ranges is in one piece, and no piece leaves the room or meets another.
TEST(NcclReduction, PiecesCoverTheRangesOfARank) {
  constexpr int64_t kRoom = 256;
  const std::vector<comm::CollectiveBuffer> buffers = {
      {{}, {}, DType::F32, 300, 150}, {{}, {}, DType::BF16, 7, 4},
      {{}, {}, DType::F32, 1, 1},     {{}, {}, DType::BF16, 0, 32},
      {{}, {}, DType::F32, 128, 64},  {{}, {}, DType::F16, 1001, 501}};
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<std::vector<int>> seen;
    seen.reserve(buffers.size());
    for (const auto& b : buffers)
      seen.emplace_back(static_cast<size_t>(comm::owned_elements(b, rank)));
    const int64_t rounds = comm::rounds_of(buffers, rank, kRoom);
    EXPECT_GT(rounds, 2);
    for (int64_t round = 0; round < rounds + 2; ++round) {
      int64_t end = 0;
      comm::for_each_piece(buffers, rank, round, kRoom, [&](const comm::ReductionPiece& piece) {
        EXPECT_LT(round, rounds);
        EXPECT_GE(piece.place, end);
        end = piece.place + piece.count * base::byte_size(piece.buffer->dtype);
        EXPECT_LE(end, kRoom);
        for (int64_t i = 0; i < piece.count; ++i)
          ++seen[static_cast<size_t>(piece.buffer - buffers.data())].at(
              static_cast<size_t>(piece.first + i));
      });
    }
    for (const auto& range : seen) EXPECT_THAT(range, testing::Each(1));
  }
}

TEST(NcclCommunicator, HasNoControlMessages) {
  const Faults faults = on_gpus(2, [](comm::ProcessGroup& job) -> Faults {
    auto communicator = job.open_communicator();
    if (!communicator.ok()) return {communicator.status().to_string()};
    const Status status = (*communicator)->barrier();
    if (status.code() != "DC6101") return {"a barrier of GPUs"};
    return {};
  });
  EXPECT_THAT(faults, testing::IsEmpty());
}

}  // namespace
}  // namespace dc::runtime
