// The ipc communicator on the doubles of the driver and NVRTC (tests/double), ranks as threads and
// as processes.
#include "runtime/comm/ipc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <thread>

#include "runtime/comm/gpu_ranks.h"
#include "runtime/comm/ipc_link.h"
#include "runtime/comm/ipc_page.h"
#include "runtime/exec/open_gpu.h"
#include "tests/runtime/comm/conformance.h"
#include "tests/runtime/comm/groups.h"
#include "tests/runtime/comm/processes.h"
#include "tests/runtime/comm/rank_threads.h"
#include "tests/runtime/kernel/cuda/kernel_cache.h"

namespace dc::runtime {
namespace {

using base::DType;
using base::Status;
using std::chrono::milliseconds;
using Faults = std::vector<std::string>;
using Body = std::function<Faults(comm::ProcessGroup&)>;

Faults run_rank(base::Result<std::unique_ptr<comm::ProcessGroup>> hosts, const Body& body) {
  if (!hosts.ok()) return {hosts.status().to_string()};
  auto job = comm::add_ipc(std::move(*hosts), exec::open_gpu(0, milliseconds(60'000)));
  return job.ok() ? body(**job) : Faults{job.status().to_string()};
}

// Runs `body` on every rank; what went wrong on any.
Faults as_threads(int world, const Body& body) {
  return conformance::on_rank_threads(
      world, [&](conformance::Hosts hosts) { return run_rank(std::move(hosts), body); });
}

void expect_well_as_processes(int world, const Body& body) {
  const std::string name = conformance::fresh_job_name();
  const std::vector<pid_t> pids = conformance::fork_ranks(world, [&](int rank) {
    const Faults faults =
        run_rank(comm::connect(conformance::local_launch(name, rank, world), {}), body);
    for (const std::string& fault : faults) std::fprintf(stderr, "%s\n", fault.c_str());
    return faults.empty() ? 0 : 1;
  });
  for (const pid_t pid : pids) EXPECT_EQ(conformance::wait_for(pid), 0);
}

// Before the tests of threads: what is forked must not have used its GPU, and tests with parameters
// come last. A GPU works for one process at a time, in slices of about 2 ms, so each meeting of
// ranks takes as many as there are ranks: there two ranks are enough
// (scripts/benchmark/gpu_tests.py).
TEST(IpcProcesses, TwoDoWhatEveryCommunicatorDoes) {
  expect_well_as_processes(2, [](auto& job) { return conformance::run_rank(job, true); });
}
TEST(IpcProcesses, ThreeDoWhatEveryCommunicatorDoes) {
  expect_well_as_processes(3, [](auto& job) { return conformance::run_rank(job, true); });
}
TEST(IpcProcessGroups, AreOfSomeOfTheRanks) {
  expect_well_as_processes(4, [](auto& job) { return conformance::run_groups(job); });
}

class IpcThreads : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, IpcThreads, testing::Values(2, 3));
TEST_P(IpcThreads, DoWhatEveryCommunicatorDoes) {
  EXPECT_THAT(as_threads(GetParam(), [](auto& job) { return conformance::run_rank(job, true); }),
              testing::IsEmpty());
}
TEST(IpcThreadGroups, AreOfSomeOfTheRanks) {
  EXPECT_THAT(as_threads(4, [](auto& job) { return conformance::run_groups(job); }),
              testing::IsEmpty());
}

TEST(IpcCommunicator, CountsWhatGoesToOtherHosts) {
  EXPECT_THAT(as_threads(4, [](auto& job) { return conformance::run_across_hosts(job); }),
              testing::IsEmpty());
}

TEST(IpcCommunicator, HasNoControlMessages) {
  const Faults faults = as_threads(2, [](comm::ProcessGroup& job) -> Faults {
    auto communicator = job.open_communicator();
    if (!communicator.ok()) return {communicator.status().to_string()};
    const Status status = (*communicator)->barrier();
    if (status.code() != "DC6101") return {"a barrier of GPUs"};
    return {};
  });
  EXPECT_THAT(faults, testing::IsEmpty());
}

TEST(IpcCommunicator, RefusesMemoryOutsideOfTheSlabs) {
  const Faults faults = as_threads(2, [](comm::ProcessGroup& job) -> Faults {
    auto slab = job.allocate(4096);
    auto communicator = job.open_communicator();
    if (!slab.ok() || !communicator.ok()) return {"no communicator"};
    const auto stream = job.device().make_stream();
    const comm::CollectiveBuffer past{
        {slab->base + 64, 0}, {slab->base + 64, 0}, DType::F32, 1024, 512};
    const Status status = (*communicator)->all_reduce({&past, 1}, *stream);
    if (status.code() != "DC6101") return {"a sum past the slab's end: " + status.to_string()};
    return {};
  });
  EXPECT_THAT(faults, testing::IsEmpty());
}

// At once: what it was waiting for may have come, and its sums are none.
TEST(IpcCommunicator, IsNotHealthyWhenAMemberHasGivenUp) {
  const Faults faults = as_threads(2, [](comm::ProcessGroup& job) -> Faults {
    auto communicator = job.open_communicator();
    if (!communicator.ok()) return {communicator.status().to_string()};
    if (!(*communicator)->health().ok()) return {"ill from the beginning"};
    const bool gives_up = job.control().rank().v == 1;
    if (!job.control().barrier().ok()) return {"no barrier"};
    if (gives_up) (*communicator)->abort();
    if (!job.control().barrier().ok()) return {"no barrier"};
    const Status status = (*communicator)->health();
    if (!job.control().barrier().ok()) return {"no barrier"};
    if (status.ok()) return {"healthy"};
    if (status.code() != (gives_up ? "DC6105" : "DC6164")) return {status.to_string()};
    return {};
  });
  EXPECT_THAT(faults, testing::IsEmpty());
}

// Who carries the collectives: of ranks as threads, whose NCCL and GPU are the same.
std::string carrier(const char* backend) {
  auto hosts = comm::connect_threads(2, {});
  std::vector<std::string> names(2);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto job =
          comm::add_gpus(std::move(hosts[rank]), exec::open_gpu(0, milliseconds(60'000)), backend);
      names[rank] = job.ok() ? std::string((*job)->name()) : job.status().to_string();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(names[0], names[1]);
  return names[0];
}

TEST(IpcChoice, IsForRanksThatShareAGpuUnlessAnotherIsAskedFor) {
  EXPECT_EQ(carrier("auto"), "ipc");
  EXPECT_EQ(carrier("local"), "ipc");
  EXPECT_EQ(carrier("tcp"), "nccl");
}

TEST(IpcPage, KeepsTheFirstEndOfARankAndItsNumbersApart) {
  constexpr int kWorld = 3;
  std::vector<std::byte> bytes(static_cast<size_t>(comm::IpcPage::bytes(kWorld)));
  const comm::IpcPage page(bytes.data(), kWorld);
  page.set_state(1, comm::IpcState::Left);
  page.set_state(1, comm::IpcState::GaveUp);
  EXPECT_EQ(page.state(1), comm::IpcState::Left);
  EXPECT_EQ(page.state(0), comm::IpcState::Running);
  std::vector<uint32_t*> seen;
  for (int place : {0, 1, comm::kMaxIpcLinks - 1}) {
    for (int receiver = 0; receiver < kWorld; ++receiver)
      for (int sender = 0; sender < kWorld; ++sender)
        seen.push_back(page.number(place, receiver, sender));
  }
  std::ranges::sort(seen);
  EXPECT_EQ(std::ranges::adjacent_find(seen), seen.end());
  auto* const words = reinterpret_cast<uint32_t*>(bytes.data());
  EXPECT_EQ(seen.front(), words + kWorld);
  EXPECT_EQ(seen.back() + 1, words + bytes.size() / sizeof *words);
}

// A rank that gives up goes on and tells its peers that it has come; they can see that it is not to
// be believed. It lets no other rank go on.
TEST(IpcLink, OneThatFailsReleasesItsOwnStreamsAndIsNotBelieved) {
  constexpr int kWorld = 3;
  auto& gpu =
      static_cast<device::CudaDevice&>(*device::open_device(base::DeviceKind::Cuda).value());
  const std::shared_ptr<device::DeviceMemory> memory =
      gpu.allocate_host(comm::IpcPage::bytes(kWorld)).value();
  std::memset(memory->base(), 0, static_cast<size_t>(memory->bytes()));
  const comm::IpcPage page(memory->base(), kWorld);
  std::vector<std::unique_ptr<comm::IpcLink>> links;
  std::vector<std::unique_ptr<device::Stream>> streams;
  const auto meet_twice = [&](size_t rank) {
    auto& stream = static_cast<device::CudaStream&>(*streams[rank]);
    EXPECT_TRUE(links[rank]->begin(comm::Operation::AllReduce, stream).ok());
    EXPECT_TRUE(links[rank]->meet(stream).ok());
  };
  for (int rank = 0; rank < kWorld; ++rank) {
    links.push_back(
        std::make_unique<comm::IpcLink>(memory, page, comm::all_ranks(rank, kWorld), 0));
    streams.push_back(gpu.make_stream());
  }
  meet_twice(1);
  meet_twice(2);
  while (links[1]->missing() != std::vector{0} || links[2]->missing() != std::vector{0})
    std::this_thread::yield();
  const uint32_t waited_for = *page.number(0, 2, 1);
  links[1]->fail(comm::called_off(comm::Operation::AllReduce));
  EXPECT_TRUE(streams[1]->drain().ok());
  EXPECT_EQ(*page.number(0, 2, 1), waited_for + 1);  // it came to the second barrier
  EXPECT_EQ(links[2]->missing(), std::vector{0});    // which rank 2 has not
  EXPECT_EQ(links[2]->arrived(), waited_for);
  EXPECT_EQ(*page.number(0, 2, 0), 0U);
  meet_twice(0);
  EXPECT_TRUE(streams[0]->drain().ok() && streams[2]->drain().ok());
  for (const size_t rank : {0, 2}) {
    EXPECT_FALSE(links[rank]->is_under_way());
    EXPECT_TRUE(links[rank]->failure().ok());
    EXPECT_TRUE(links[rank]->is_given_up());
  }
  auto& stream = static_cast<device::CudaStream&>(*streams[1]);
  EXPECT_EQ(links[1]->begin(comm::Operation::AllGather, stream).code(), "DC6105");
  EXPECT_EQ(*page.number(0, 0, 1), waited_for + 1);
}

}  // namespace
}  // namespace dc::runtime
