// The conformance suite on the tcp communicator, as threads and as processes over loopback, and how
// its failures show.
#include "runtime/comm/tcp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/runtime/comm/conformance.h"
#include "tests/runtime/comm/processes.h"

namespace dc::runtime {
namespace {

using base::ErrorKind;
using conformance::fork_ranks;
using conformance::free_port;
using conformance::fresh_job_name;
using conformance::local_launch;
using conformance::remote_launch;
using conformance::wait_for;
using std::chrono::milliseconds;
using testing::HasSubstr;
using Jobs = std::vector<std::unique_ptr<comm::ProcessGroup>>;

comm::CommOptions tcp(milliseconds timeout = milliseconds(60'000)) {
  comm::CommOptions options;
  options.backend = "tcp";
  options.timeout = timeout;
  return options;
}

void on_threads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(ranks);
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

// Ranks as threads of this process; empty if they did not all connect.
Jobs connect_ranks(int ranks, const comm::CommOptions& options) {
  Jobs jobs(static_cast<size_t>(ranks));
  const std::string name = fresh_job_name();
  on_threads(ranks, [&](int rank) {
    auto job = comm::connect(local_launch(name, rank, ranks), options);
    if (job.ok())
      jobs[static_cast<size_t>(rank)] = std::move(job).value();
    else
      std::fprintf(stderr, "%s\n", job.status().to_string().c_str());
  });
  for (const auto& job : jobs) {
    if (job == nullptr) return {};
  }
  return jobs;
}

class Tcp : public testing::TestWithParam<int> {};

TEST_P(Tcp, ThreadsConform) {
  Jobs jobs = connect_ranks(GetParam(), tcp());
  ASSERT_EQ(jobs.size(), static_cast<size_t>(GetParam()));
  std::vector<std::vector<std::string>> faults(jobs.size());
  on_threads(GetParam(), [&](int rank) {
    const auto at = static_cast<size_t>(rank);
    faults[at] = conformance::run_rank(*jobs[at], true);
  });
  EXPECT_EQ(jobs[0]->control().name(), "tcp");
  for (const auto& list : faults) EXPECT_THAT(list, testing::IsEmpty());
}

TEST_P(Tcp, HostsConform) {
  const int port = free_port();
  const auto pids = fork_ranks(GetParam(), [&](int rank) {
    auto job = comm::connect(remote_launch(port, rank, GetParam()), tcp());
    if (!job.ok()) return std::fprintf(stderr, "%s\n", job.status().to_string().c_str()), 2;
    const auto faults = conformance::run_rank(*job.value(), true);
    for (const std::string& fault : faults) std::fprintf(stderr, "%s\n", fault.c_str());
    return faults.empty() ? 0 : 1;
  });
  for (const pid_t pid : pids) EXPECT_EQ(wait_for(pid), 0);
}

// On memory that only work of streams can reach, so nothing else touches a slab.
TEST(TcpChecked, ThreadsConform) {
  comm::CommOptions options = tcp();
  options.device = *device::open_device(base::DeviceKind::Checked);
  Jobs jobs = connect_ranks(3, options);
  ASSERT_EQ(jobs.size(), 3u);
  std::vector<std::vector<std::string>> faults(jobs.size());
  on_threads(3, [&](int rank) {
    const auto at = static_cast<size_t>(rank);
    faults[at] = conformance::run_rank(*jobs[at], true);
  });
  for (const auto& list : faults) EXPECT_THAT(list, testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Ranks, Tcp, testing::Values(1, 2, 3, 4, 5));

// Larger than what sockets hold, so every rank has to receive while it sends; sums in many rounds.
TEST(TcpCollective, LargeBuffersInPlace) {
  constexpr int kWorld = 3;
  constexpr int64_t kElements = 7'000'001, kShard = (kElements + kWorld - 1) / kWorld;
  Jobs jobs = connect_ranks(kWorld, tcp());
  ASSERT_EQ(jobs.size(), size_t{kWorld});
  on_threads(kWorld, [&](int rank) {
    comm::ProcessGroup& job = *jobs[static_cast<size_t>(rank)];
    const auto slab = job.allocate(kElements * 4);
    ASSERT_TRUE(slab.ok());
    auto* data = reinterpret_cast<float*>(slab.value().base);
    for (int64_t i = 0; i < kElements; ++i) data[i] = conformance::number(rank, i, 1);
    const comm::CollectiveBuffer buffer{{data, 0}, {data, 0}, base::DType::F32, kElements, kShard};
    ASSERT_TRUE(job.control().all_reduce({&buffer, 1}, *device::cpu_device().make_stream()).ok());
    int64_t wrong = 0;
    for (int64_t i = 0; i < kElements; ++i)
      wrong += data[i] != conformance::expected_sum(base::DType::F32, kWorld, i, 1);
    EXPECT_EQ(wrong, 0);
  });
}

// One thread per communicator on every rank, each with collectives of its own sizes.
TEST(TcpCollective, ManyCommunicatorsAtOnce) {
  constexpr int kWorld = 3, kCommunicators = 4;
  constexpr int64_t kRoom = 70'000;
  Jobs jobs = connect_ranks(kWorld, tcp());
  ASSERT_EQ(jobs.size(), size_t{kWorld});
  std::atomic<int> wrong{0};
  on_threads(kWorld, [&](int rank) {
    comm::ProcessGroup& job = *jobs[static_cast<size_t>(rank)];
    const auto slab = job.allocate(kCommunicators * kRoom * 4);
    ASSERT_TRUE(slab.ok());
    std::vector<std::unique_ptr<comm::Communicator>> communicators;
    for (int i = 0; i < kCommunicators; ++i) {
      auto opened = job.open_communicator();
      ASSERT_TRUE(opened.ok()) << opened.status().to_string();
      communicators.push_back(std::move(opened).value());
    }
    on_threads(kCommunicators, [&](int which) {
      auto* data = reinterpret_cast<float*>(slab.value().base) + which * kRoom;
      for (int round = 1; round <= 20; ++round) {
        const int64_t elements = 3001 * round + which, shard = (elements + kWorld - 1) / kWorld;
        const int salt = 100 * which + round;
        for (int64_t i = 0; i < elements; ++i) data[i] = conformance::number(rank, i, salt);
        const comm::CollectiveBuffer buffer{
            {data, 0}, {data, 0}, base::DType::F32, elements, shard};
        if (!communicators[static_cast<size_t>(which)]
                 ->all_reduce({&buffer, 1}, *device::cpu_device().make_stream())
                 .ok())
          ++wrong;
        for (int64_t i = 0; i < elements; ++i)
          wrong += data[i] != conformance::expected_sum(base::DType::F32, kWorld, i, salt);
      }
    });
  });
  EXPECT_EQ(wrong.load(), 0);
}

TEST(TcpFailure, TimeoutNamesTheMissingRanks) {
  Jobs jobs = connect_ranks(3, tcp(milliseconds(400)));
  ASSERT_EQ(jobs.size(), 3u);
  const base::Status status = jobs[1]->control().barrier();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.kind(), ErrorKind::CollectiveTimeout);
  EXPECT_THAT(status.sentence(), HasSubstr("waited 0.4 s for ranks 0, 2"));
  EXPECT_EQ(jobs[1]->control().barrier().kind(), ErrorKind::CollectiveTimeout)
      << "a broken communicator stays broken";
}

TEST(TcpFailure, LeavingIsNotDeathButEndsWaits) {
  Jobs jobs = connect_ranks(3, tcp());
  ASSERT_EQ(jobs.size(), 3u);
  std::thread last([&] { jobs[2].reset(); });
  const base::Status waiting = jobs[0]->control().barrier();
  last.join();
  ASSERT_FALSE(waiting.ok());
  EXPECT_EQ(waiting.kind(), ErrorKind::PeerDied);
  EXPECT_THAT(waiting.sentence(), HasSubstr("rank 2 (process"));
  EXPECT_THAT(waiting.sentence(), HasSubstr("left before the others were done"));
  EXPECT_TRUE(jobs[1]->control().health().ok());
}

TEST(TcpFailure, AReasonIsPassedOn) {
  Jobs jobs = connect_ranks(2, tcp());
  ASSERT_EQ(jobs.size(), 2u);
  jobs[1]->leave(base::Status(ErrorKind::BadInput, "DC1001", "the plan is torn"));
  const base::Status status = jobs[0]->control().barrier();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.kind(), ErrorKind::PeerDied);
  EXPECT_THAT(status.sentence(), HasSubstr("the plan is torn"));
  EXPECT_EQ(jobs[0]->control().health().kind(), ErrorKind::PeerDied);
}

TEST(TcpFailure, LeavingAfterTheLastBarrierHarmsNobody) {
  for (int round = 0; round < 50; ++round) {
    Jobs jobs = connect_ranks(3, tcp());
    ASSERT_EQ(jobs.size(), 3u);
    std::atomic<int> failures{0};
    on_threads(3, [&](int rank) {
      auto& job = jobs[static_cast<size_t>(rank)];
      const base::Status status = job->control().barrier();
      if (!status.ok()) {
        ++failures;
        std::fprintf(stderr, "%s\n", status.to_string().c_str());
      }
      job.reset();
    });
    ASSERT_EQ(failures.load(), 0);
  }
}

TEST(TcpFailure, AbortWakesTheWaiter) {
  Jobs jobs = connect_ranks(2, tcp());
  ASSERT_EQ(jobs.size(), 2u);
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

TEST(TcpFailure, DifferentCollectivesAreToldApart) {
  Jobs jobs = connect_ranks(2, tcp());
  ASSERT_EQ(jobs.size(), 2u);
  std::vector<base::Status> status(2);
  on_threads(2, [&](int rank) {
    comm::Communicator& control = jobs[static_cast<size_t>(rank)]->control();
    int64_t word = 0, words[2];
    status[static_cast<size_t>(rank)] =
        rank == 0 ? control.barrier() : control.exchange(&word, 8, words);
  });
  EXPECT_EQ(status[0].kind(), ErrorKind::Internal);
  EXPECT_THAT(status[0].sentence(),
              HasSubstr("rank 1 called exchange where rank 0 called barrier"));
  EXPECT_EQ(status[1].kind(), ErrorKind::Internal);
}

TEST(TcpFailure, DifferentSizesAreToldApart) {
  Jobs jobs = connect_ranks(2, tcp());
  ASSERT_EQ(jobs.size(), 2u);
  std::vector<base::Status> status(2);
  std::vector<std::vector<float>> data(2, std::vector<float>(2'000'000));
  on_threads(2, [&](int rank) {
    float* values = data[static_cast<size_t>(rank)].data();
    const int64_t elements = 2'000'000 - 2 * rank;
    const comm::CollectiveBuffer buffer{
        {values, 0}, {values, 0}, base::DType::F32, elements, 1'000'000};
    status[static_cast<size_t>(rank)] = jobs[static_cast<size_t>(rank)]->control().all_reduce(
        {&buffer, 1}, *device::cpu_device().make_stream());
  });
  for (const base::Status& each : status) {
    EXPECT_EQ(each.kind(), ErrorKind::Internal);
    EXPECT_THAT(each.sentence(), HasSubstr("called all_reduce on other values"));
  }
}

TEST(TcpFailure, SlabsMustAgree) {
  Jobs jobs = connect_ranks(2, tcp());
  ASSERT_EQ(jobs.size(), 2u);
  std::vector<base::Status> status(2);
  on_threads(2, [&](int rank) {
    const auto at = static_cast<size_t>(rank);
    status[at] = jobs[at]->allocate(4096 + 4096 * rank).status();
  });
  for (const base::Status& each : status) {
    ASSERT_FALSE(each.ok());
    EXPECT_EQ(each.kind(), ErrorKind::Mismatch);
  }
}

enum class Moment { BetweenCollectives, InACollective, WhileOthersCompute };

// Twenty barriers, then until something fails: collectives too large for the sockets, or only
// questions about health, which is what a rank that computes does.
base::Status work(comm::ProcessGroup& job, comm::Communicator& communicator, Moment moment,
                  int victim, int signal) {
  for (int step = 0; step < 20; ++step) DC_RETURN_IF_ERROR(communicator.barrier());
  std::thread killer;
  if (communicator.rank().v == victim) {
    ::signal(signal, SIG_DFL);
    if (moment == Moment::BetweenCollectives) kill(getpid(), signal);
    killer = std::thread([&] {
      usleep(20'000);
      kill(getpid(), signal);
    });
    killer.detach();
  }
  std::vector<float> data(4'000'000);
  const comm::CollectiveBuffer buffer{
      {data.data(), 0}, {data.data(), 0}, base::DType::F32, 4'000'000, 1'333'334};
  for (base::Status status;; usleep(moment == Moment::WhileOthersCompute ? 1'000 : 0)) {
    status = moment == Moment::WhileOthersCompute
                 ? job.control().health()
                 : communicator.all_reduce({&buffer, 1}, *device::cpu_device().make_stream());
    if (!status.ok()) return status;
  }
}

// Every survivor of a sudden death ends with 83 and the right name, soon.
void expect_death_is_noticed(int victim, int signal, Moment moment) {
  constexpr int kWorld = 3;
  const int port = free_port();
  const auto start = std::chrono::steady_clock::now();
  const auto pids = fork_ranks(kWorld, [&](int rank) {
    auto job = comm::connect(remote_launch(port, rank, kWorld), tcp());
    if (!job.ok()) return 1;
    auto communicator = job.value()->open_communicator();
    if (!communicator.ok()) return 2;
    const base::Status status = work(*job.value(), *communicator.value(), moment, victim, signal);
    const std::string& said = status.sentence();
    const bool right = status.kind() == ErrorKind::PeerDied &&
                       said.find("rank " + std::to_string(victim) + " (process ") == 0 &&
                       said.find(") died") != std::string::npos;
    if (!right) std::fprintf(stderr, "rank %d: %s\n", rank, status.to_string().c_str());
    return right ? 83 : 3;
  });
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_EQ(wait_for(pids[static_cast<size_t>(rank)]), rank == victim ? -signal : 83);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(TcpDeath, OfTheHub) { expect_death_is_noticed(0, SIGKILL, Moment::BetweenCollectives); }
TEST(TcpDeath, OfTheLast) { expect_death_is_noticed(2, SIGKILL, Moment::BetweenCollectives); }
TEST(TcpDeath, InACollective) { expect_death_is_noticed(1, SIGKILL, Moment::InACollective); }
TEST(TcpDeath, WhileOthersCompute) {
  expect_death_is_noticed(1, SIGKILL, Moment::WhileOthersCompute);
}
TEST(TcpDeath, Terminated) { expect_death_is_noticed(1, SIGTERM, Moment::BetweenCollectives); }

}  // namespace
}  // namespace dc::runtime
