// The conformance suite on the local communicator, as threads and as processes, and what only it
// promises.
#include "runtime/comm/local.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "tests/runtime/comm/conformance.h"
#include "tests/runtime/comm/processes.h"

namespace dc::runtime {
namespace {

using base::ErrorKind;
using conformance::fork_ranks;
using conformance::fresh_job_name;
using conformance::local_launch;
using conformance::wait_for;
using std::chrono::milliseconds;
using testing::HasSubstr;

class Local : public testing::TestWithParam<int> {};

// Runs `body` on every rank as a thread.
void on_threads(std::vector<std::unique_ptr<comm::ProcessGroup>>& jobs,
                const std::function<void(int, comm::ProcessGroup&)>& body) {
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < jobs.size(); ++rank) {
    threads.emplace_back([&, rank] { body(static_cast<int>(rank), *jobs[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Local, ThreadsConform) {
  auto jobs = comm::connect_threads(GetParam(), {});
  ASSERT_EQ(jobs.size(), static_cast<size_t>(GetParam()));
  std::vector<std::vector<std::string>> faults(jobs.size());
  on_threads(jobs, [&](int rank, comm::ProcessGroup& job) {
    faults[static_cast<size_t>(rank)] = conformance::run_rank(job, true);
  });
  for (const auto& list : faults) EXPECT_THAT(list, testing::IsEmpty());
}

TEST_P(Local, ProcessesConform) {
  const std::string name = fresh_job_name();
  const auto pids = fork_ranks(GetParam(), [&](int rank) {
    auto job = comm::connect(local_launch(name, rank, GetParam()), {});
    if (!job.ok()) return std::fprintf(stderr, "%s\n", job.status().to_string().c_str()), 2;
    const auto faults = conformance::run_rank(*job.value(), true);
    for (const std::string& fault : faults) std::fprintf(stderr, "%s\n", fault.c_str());
    return faults.empty() ? 0 : 1;
  });
  for (const pid_t pid : pids) EXPECT_EQ(wait_for(pid), 0);
}

// On memory that only work of streams can reach, so nothing else touches a slab.
TEST(LocalChecked, ThreadsAndProcessesConform) {
  comm::CommOptions options;
  options.device = *device::open_device(base::DeviceKind::Checked);
  auto jobs = comm::connect_threads(3, options);
  std::vector<std::vector<std::string>> faults(jobs.size());
  on_threads(jobs, [&](int rank, comm::ProcessGroup& job) {
    faults[static_cast<size_t>(rank)] = conformance::run_rank(job, true);
  });
  for (const auto& list : faults) EXPECT_THAT(list, testing::IsEmpty());
  const std::string name = fresh_job_name();
  const auto pids = fork_ranks(3, [&](int rank) {
    auto job = comm::connect(local_launch(name, rank, 3), options);
    if (!job.ok()) return std::fprintf(stderr, "%s\n", job.status().to_string().c_str()), 2;
    const auto found = conformance::run_rank(*job.value(), true);
    for (const std::string& fault : found) std::fprintf(stderr, "%s\n", fault.c_str());
    return found.empty() ? 0 : 1;
  });
  for (const pid_t pid : pids) EXPECT_EQ(wait_for(pid), 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Local, testing::Values(1, 2, 3, 4, 5));

// Milliseconds of processor time of the calling thread.
double thread_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// With ranks that have a core each and with more ranks than cores.
TEST(LocalWaiting, ARankThatWaitsForLongSleeps) {
  for (const int world : {2, 2 * static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))}) {
    auto jobs = comm::connect_threads(world, {});
    std::atomic<int> greedy{0}, failures{0};
    on_threads(jobs, [&](int rank, comm::ProcessGroup& job) {
      for (int round = 0; round < 3; ++round) {
        if (rank == 0) std::this_thread::sleep_for(milliseconds(100));
        const double before = thread_ms();
        if (!job.control().barrier().ok()) ++failures;
        if (thread_ms() - before > 20) ++greedy;
      }
    });
    EXPECT_EQ(failures.load(), 0);
    EXPECT_EQ(greedy.load(), 0) << "of " << world << " ranks, each for 100 ms";
  }
}

TEST(LocalFailure, TimeoutNamesTheMissingRanks) {
  comm::CommOptions options;
  options.timeout = milliseconds(50);
  auto jobs = comm::connect_threads(3, options);
  const base::Status status = jobs[1]->control().barrier();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.kind(), ErrorKind::CollectiveTimeout);
  EXPECT_THAT(status.sentence(), HasSubstr("ranks 0, 2"));
  EXPECT_EQ(jobs[1]->control().barrier().kind(), ErrorKind::CollectiveTimeout)
      << "a broken communicator stays broken";
}

TEST(LocalFailure, LeavingIsNotDeathButEndsWaits) {
  auto jobs = comm::connect_threads(3, {});
  std::thread last([&] { jobs[2].reset(); });
  const base::Status waiting = jobs[0]->control().barrier();
  last.join();
  ASSERT_FALSE(waiting.ok());
  EXPECT_EQ(waiting.kind(), ErrorKind::PeerDied);
  EXPECT_THAT(waiting.sentence(), HasSubstr("rank 2 left"));
  EXPECT_TRUE(jobs[1]->control().health().ok());
}

TEST(LocalFailure, AReasonIsPassedOn) {
  auto jobs = comm::connect_threads(2, {});
  jobs[1]->leave(base::Status(ErrorKind::BadInput, "DC1001", "the plan is torn"));
  const base::Status status = jobs[0]->control().barrier();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.kind(), ErrorKind::PeerDied);
  EXPECT_THAT(status.sentence(), HasSubstr("the plan is torn"));
  EXPECT_EQ(jobs[0]->control().health().kind(), ErrorKind::PeerDied);
}

TEST(LocalFailure, LeavingAfterTheLastBarrierHarmsNobody) {
  for (int round = 0; round < 200; ++round) {
    auto jobs = comm::connect_threads(3, {});
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    threads.reserve(jobs.size());
    for (auto& job : jobs) {
      threads.emplace_back([&failures, &job] {
        if (!job->control().barrier().ok()) ++failures;
        job.reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(failures.load(), 0);
  }
}

TEST(LocalFailure, AbortWakesTheWaiter) {
  auto jobs = comm::connect_threads(2, {});
  base::Status status;
  std::atomic<bool> inside{false};
  std::thread waiter([&] {
    inside.store(true);
    status = jobs[0]->control().barrier();
  });
  while (!inside.load()) std::this_thread::yield();
  jobs[0]->control().abort();
  waiter.join();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.kind(), ErrorKind::Unavailable);
}

TEST(LocalFailure, DifferentCollectivesAreToldApart) {
  auto jobs = comm::connect_threads(2, {});
  std::vector<base::Status> status(2);
  on_threads(jobs, [&](int rank, comm::ProcessGroup& job) {
    int64_t word = 0, words[2];
    status[static_cast<size_t>(rank)] =
        rank == 0 ? job.control().barrier() : job.control().exchange(&word, 8, words);
  });
  EXPECT_EQ(status[0].kind(), ErrorKind::Internal);
  EXPECT_THAT(status[0].sentence(),
              HasSubstr("rank 1 called exchange where rank 0 called barrier"));
  EXPECT_EQ(status[1].kind(), ErrorKind::Internal);
}

TEST(LocalFailure, WrongBuffersAreRefused) {
  auto jobs = comm::connect_threads(1, {});
  const auto slab = jobs[0]->allocate(4096);
  ASSERT_TRUE(slab.ok());
  auto* floats = reinterpret_cast<float*>(slab.value().base);
  float outside[8] = {};
  const auto refused = [&](comm::CollectiveBuffer buffer) {
    const base::Status status =
        jobs[0]->control().all_reduce({&buffer, 1}, *device::cpu_device().make_stream());
    return !status.ok() && status.kind() == ErrorKind::Internal;
  };
  using base::DType;
  EXPECT_FALSE(refused({{floats, 0}, {floats, 0}, DType::F32, 8, 8}));
  EXPECT_TRUE(refused({{floats, 0}, {floats + 4, 0}, DType::F32, 8, 8})) << "overlap";
  EXPECT_TRUE(refused({{floats, 0}, {floats, 0}, DType::BF16, 8, 8}))
      << "in place with another dtype";
  EXPECT_TRUE(refused({{outside, 0}, {floats, 0}, DType::F32, 8, 8})) << "outside the slab";
  EXPECT_TRUE(refused({{floats, 0}, {floats + 64, 0}, DType::F32, 8, 4})) << "uncovered";
  EXPECT_TRUE(refused({{floats, 0}, {floats + 64, 0}, DType::I32, 8, 8})) << "integers";
  EXPECT_TRUE(refused({{floats, 0}, {floats + 1020, 0}, DType::F32, 8, 8})) << "past the end";
}

// What rank `rank` holds at float `i`.
float held(int rank, int64_t i) { return static_cast<float>(1 + 1000 * rank + i % 997); }

// 0 if every collective reads the floats at `shared` of all ranks of three.
int read_at_peers(comm::Communicator& communicator, int rank, float* shared, int64_t count) {
  const auto stream = device::cpu_device().make_stream();
  const int64_t shard = (count + 2) / 3;
  std::vector<float> whole(static_cast<size_t>(3 * count)), part(static_cast<size_t>(shard));
  for (int64_t i = 0; i < count; ++i) shared[i] = held(rank, i);
  comm::CollectiveBuffer gathered{
      {shared, 0}, {whole.data(), 0}, base::DType::F32, 3 * count, count};
  if (!communicator.all_gather({&gathered, 1}, *stream).ok()) return 10;
  for (int64_t i = 0; i < 3 * count; ++i) {
    if (whole[static_cast<size_t>(i)] != held(static_cast<int>(i / count), i % count)) return 11;
  }
  const auto sum = [](int64_t i) { return held(0, i) + held(1, i) + held(2, i); };
  comm::CollectiveBuffer scattered{{shared, 0}, {part.data(), 0}, base::DType::F32, count, shard};
  if (!communicator.reduce_scatter({&scattered, 1}, *stream).ok()) return 12;
  for (int64_t i = rank * shard; i < std::min(count, (rank + 1) * shard); ++i) {
    if (part[static_cast<size_t>(i - rank * shard)] != sum(i)) return 13;
  }
  comm::CollectiveBuffer summed{{shared, 0}, {shared, 0}, base::DType::F32, count, shard};
  if (!communicator.all_reduce({&summed, 1}, *stream).ok()) return 14;
  for (int64_t i = 0; i < count; ++i) {
    if (shared[i] != sum(i)) return 15;
  }
  return 0;
}

constexpr int64_t kMiB = int64_t{1} << 20;

// Sums and results of peers through what is shared, and everything else in memory of the process:
// all bytes of ranges that end within large pages are read.
TEST(LocalMemory, OnlyWhatPeersReadIsShared) {
  constexpr int64_t kWhole = 32 * kMiB;
  const std::vector<base::ByteRange> read = {{0, 4096},
                                             {5 * kMiB + 100, 9 * kMiB + 260},
                                             {20 * kMiB, 20 * kMiB + 64},
                                             {kWhole - 3 * kMiB - 64, kWhole}};
  const std::string name = fresh_job_name();
  const auto pids = fork_ranks(3, [&](int rank) {
    auto job = comm::connect(local_launch(name, rank, 3), {});
    if (!job.ok()) return 2;
    const auto slab = job.value()->allocate(kWhole);
    if (!slab.ok() || !job.value()->restrict_reads(*slab, read).ok()) return 3;
    std::byte* memory = slab->base;
    if (std::any_of(memory, memory + kWhole, [](std::byte b) { return b != std::byte{0}; }))
      return 4;
    std::fill(memory, memory + kWhole, std::byte(rank + 1));
    auto communicator = job.value()->open_communicator();
    if (!communicator.ok()) return 5;
    int64_t begin = 0;
    for (const base::ByteRange& range : read) {
      auto* shared = reinterpret_cast<float*>(memory + range.begin);
      const int64_t count = (range.end - range.begin) / static_cast<int64_t>(sizeof(float));
      if (const int wrong = read_at_peers(**communicator, rank, shared, count)) return wrong;
      if (std::any_of(memory + begin, memory + range.begin,
                      [&](std::byte b) { return b != std::byte(rank + 1); }))
        return 6;
      begin = range.end;
    }
    // A sum of what peers cannot see.
    auto* own = reinterpret_cast<float*>(memory + 12 * kMiB);
    comm::CollectiveBuffer summed{
        {own, 0}, {reinterpret_cast<float*>(memory), 0}, base::DType::F32, 24, 8};
    const auto stream = device::cpu_device().make_stream();
    const base::Status refused = (*communicator)->reduce_scatter({&summed, 1}, *stream);
    if (refused.kind() != ErrorKind::Internal) return 8;
    return job.value()->control().barrier().ok() ? 0 : 9;
  });
  for (const pid_t pid : pids) EXPECT_EQ(wait_for(pid), 0);
}

TEST(LocalMemory, NothingOutsideTheSlabIsMadePrivate) {
  auto jobs = comm::connect_threads(1, {});
  const auto slab = jobs[0]->allocate(4 * kMiB);
  ASSERT_TRUE(slab.ok());
  const std::vector<std::vector<base::ByteRange>> wrong = {
      {{0, 4 * kMiB + 1}}, {{5 * kMiB, 6 * kMiB}}, {{-4, 64}}, {{64, 128}, {0, 32}}};
  for (const auto& ranges : wrong)
    EXPECT_EQ(jobs[0]->restrict_reads(*slab, ranges).code(), "DC6101") << ranges[0].begin;
  EXPECT_TRUE(jobs[0]->restrict_reads(*slab, {}).ok());
}

TEST(LocalFailure, SlabsMustAgree) {
  auto jobs = comm::connect_threads(2, {});
  std::vector<base::Status> status(2);
  on_threads(jobs, [&](int rank, comm::ProcessGroup& job) {
    status[static_cast<size_t>(rank)] = job.allocate(4096 + 4096 * rank).status();
  });
  for (const base::Status& each : status) {
    ASSERT_FALSE(each.ok());
    EXPECT_EQ(each.kind(), ErrorKind::Mismatch);
  }
}

// Every survivor of a sudden death ends with 83 and the right name, soon.
void expect_death_is_noticed(int victim, int signal, bool before_waiting) {
  constexpr int kWorld = 3;
  const std::string name = fresh_job_name();
  const auto start = std::chrono::steady_clock::now();
  const auto pids = fork_ranks(kWorld, [&](int rank) {
    auto job = comm::connect(local_launch(name, rank, kWorld), {});
    if (!job.ok()) return 1;
    auto communicator = job.value()->open_communicator();
    if (!communicator.ok()) return 2;
    for (int step = 0;; ++step) {
      if (rank == victim && step == 20) {
        if (!before_waiting) usleep(50'000);
        ::signal(signal, SIG_DFL);
        raise(signal);
      }
      const base::Status status = communicator.value()->barrier();
      if (status.ok()) continue;
      const std::string named = "rank " + std::to_string(victim) + " (process ";
      const bool right = status.kind() == ErrorKind::PeerDied && status.sentence().find(named) == 0;
      if (!right) std::fprintf(stderr, "rank %d: %s\n", rank, status.to_string().c_str());
      return right ? 83 : 3;
    }
  });
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_EQ(wait_for(pids[static_cast<size_t>(rank)]), rank == victim ? -signal : 83);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(LocalDeath, KilledHub) { expect_death_is_noticed(0, SIGKILL, false); }
TEST(LocalDeath, KilledPeer) { expect_death_is_noticed(2, SIGKILL, false); }
TEST(LocalDeath, KilledWhileOthersCompute) { expect_death_is_noticed(1, SIGKILL, true); }
TEST(LocalDeath, Terminated) { expect_death_is_noticed(1, SIGTERM, false); }

// A child that the dead rank left behind holds its socket open: only the process descriptor tells.
TEST(LocalDeath, ALeftoverChildHidesNothing) {
  const std::string name = fresh_job_name();
  const auto pids = fork_ranks(2, [&](int rank) {
    auto job = comm::connect(local_launch(name, rank, 2), {});
    if (!job.ok()) return 1;
    if (rank == 1) {
      if (fork() == 0) {
        usleep(3'000'000);
        _exit(0);
      }
      raise(SIGKILL);
    }
    const auto before = std::chrono::steady_clock::now();
    const base::Status status = job.value()->control().barrier();
    const bool soon = std::chrono::steady_clock::now() - before < milliseconds(1500);
    return !status.ok() && status.kind() == ErrorKind::PeerDied && soon ? 83 : 1;
  });
  EXPECT_EQ(wait_for(pids[0]), 83);
  EXPECT_EQ(wait_for(pids[1]), -SIGKILL);
}

// Forks a process with this id. -1: it may not.
pid_t fork_as(pid_t id) {
  std::ofstream("/proc/sys/kernel/ns_last_pid") << id - 1;
  const pid_t pid = fork();
  if (pid == 0) {
    pause();
    _exit(0);
  }
  if (pid != id) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
  return pid == id ? pid : -1;
}

// A stranger there has the id that rank 0 has here.
TEST(LocalDeath, OfAStrangerInAnotherProcessNamespaceIsNone) {
  constexpr int kMayNot = 77, kBarriers = 20;
  const std::string name = fresh_job_name();
  int ids[2];
  ASSERT_EQ(pipe(ids), 0);
  const auto meet = [&](int rank, const auto& once_there) {
    auto job = comm::connect(local_launch(name, rank, 2), {});
    if (!job.ok()) return 1;
    once_there();
    for (int i = 0; i < kBarriers; ++i, usleep(5000)) {
      const base::Status status = job.value()->control().barrier();
      if (!status.ok()) return std::fprintf(stderr, "%s\n", status.to_string().c_str()), 2;
    }
    return 0;
  };
  const auto pids = fork_ranks(2, [&](int rank) {
    pid_t id = getpid();
    if (rank == 0) {
      if (write(ids[1], &id, sizeof(id)) != sizeof(id)) return 1;
      return meet(0, [] {});
    }
    if (read(ids[0], &id, sizeof(id)) != sizeof(id) || unshare(CLONE_NEWPID) != 0) return kMayNot;
    const auto there = fork_ranks(1, [&](int) {
      const pid_t stranger = fork_as(id);
      if (stranger < 0) return kMayNot;
      return meet(1, [&] { kill(stranger, SIGKILL), waitpid(stranger, nullptr, 0); });
    });
    return wait_for(there[0]);
  });
  const int code = wait_for(pids[1]);
  if (code == kMayNot) kill(pids[0], SIGKILL);
  const int of_hub = wait_for(pids[0]);
  close(ids[0]), close(ids[1]);
  if (code == kMayNot) GTEST_SKIP() << "needs the right to make a process namespace";
  EXPECT_EQ(code, 0);
  EXPECT_EQ(of_hub, 0);
}

TEST(LocalDeath, BeforeTheMeeting) {
  comm::CommOptions options;
  options.timeout = milliseconds(400);
  const std::string name = fresh_job_name();
  const auto pids = fork_ranks(3, [&](int rank) {
    if (rank == 2) return 0;
    const auto job = comm::connect(local_launch(name, rank, 3), options);
    const bool right = !job.ok() && job.status().kind() == ErrorKind::CollectiveTimeout &&
                       job.status().sentence().find("missing: 2") != std::string::npos;
    if (!right) std::fprintf(stderr, "%s\n", job.status().to_string().c_str());
    return right ? 82 : 1;
  });
  EXPECT_EQ(wait_for(pids[0]), 82);
  EXPECT_EQ(wait_for(pids[1]), 82);
  EXPECT_EQ(wait_for(pids[2]), 0);
}

TEST(LocalMeeting, WorldsMustAgree) {
  const std::string name = fresh_job_name();
  const auto pids = fork_ranks(2, [&](int rank) {
    const auto job = comm::connect(local_launch(name, rank, rank == 0 ? 2 : 3), {});
    return !job.ok() && job.status().kind() == ErrorKind::BadConfig ? 78 : 1;
  });
  EXPECT_EQ(wait_for(pids[0]), 78);
  EXPECT_EQ(wait_for(pids[1]), 78);
}

TEST(LocalMeeting, SeveralHostsNeedAnother) {
  comm::LaunchInfo launch = local_launch("somewhere", 0, 4);
  launch.local_world = 2;
  comm::CommOptions options;
  options.backend = "local";
  const auto job = comm::connect(launch, options);
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.status().kind(), ErrorKind::Unavailable);
  EXPECT_THAT(job.status().sentence(), HasSubstr("several hosts need --comm tcp"));
}

TEST(LocalMeeting, UnknownBackend) {
  comm::CommOptions options;
  options.backend = "carrier-pigeon";
  const auto job = comm::connect(comm::LaunchInfo{}, options);
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.status().kind(), ErrorKind::Usage);
}

}  // namespace
}  // namespace dc::runtime
