// Communicators of some ranks of a job, on the local and the tcp communicator.
#include "tests/runtime/comm/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <tuple>

#include "runtime/comm/hosts.h"
#include "tests/runtime/comm/conformance.h"
#include "tests/runtime/comm/processes.h"

namespace dc::runtime {
namespace {

using base::ErrorKind;
using base::Status;
using conformance::fork_ranks;
using conformance::free_port;
using conformance::fresh_job_name;
using conformance::local_launch;
using conformance::ranks_like;
using conformance::remote_launch;
using conformance::wait_for;
using std::chrono::milliseconds;
using testing::HasSubstr;
using Jobs = std::vector<std::unique_ptr<comm::ProcessGroup>>;

int by_parity(int rank, int) { return rank % 2; }

void on_threads(size_t ranks, const std::function<void(size_t)>& body) {
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

class Groups : public testing::TestWithParam<const char*> {
 protected:
  comm::CommOptions options(milliseconds timeout) const {
    comm::CommOptions options;
    options.backend = GetParam();
    options.timeout = timeout;
    return options;
  }
  // Ranks as threads of this process.
  Jobs connect_ranks(int ranks, milliseconds timeout = milliseconds(60'000)) const {
    if (std::string_view(GetParam()) == "local")
      return comm::connect_threads(ranks, options(timeout));
    Jobs jobs(static_cast<size_t>(ranks));
    const std::string name = fresh_job_name();
    on_threads(jobs.size(), [&](size_t rank) {
      auto job = comm::connect(local_launch(name, static_cast<int>(rank), ranks), options(timeout));
      if (job.ok()) jobs[rank] = std::move(job).value();
    });
    for (const auto& job : jobs) EXPECT_NE(job, nullptr);
    return jobs;
  }
  // 0 and 2, 1 and 3.
  std::vector<std::unique_ptr<comm::Communicator>> open_by_parity(Jobs& jobs) const {
    std::vector<std::unique_ptr<comm::Communicator>> opened(jobs.size());
    on_threads(jobs.size(), [&](size_t rank) {
      const int world = static_cast<int>(jobs.size());
      auto one =
          jobs[rank]->open_communicator(ranks_like(static_cast<int>(rank), world, by_parity));
      ASSERT_TRUE(one.ok()) << one.status().to_string();
      opened[rank] = std::move(one).value();
    });
    return opened;
  }
};

TEST_P(Groups, ThreadsConform) {
  for (const int world : {1, 4, 6}) {
    Jobs jobs = connect_ranks(world);
    std::vector<std::vector<std::string>> faults(jobs.size());
    on_threads(jobs.size(),
               [&](size_t rank) { faults[rank] = conformance::run_groups(*jobs[rank]); });
    for (const auto& list : faults) EXPECT_THAT(list, testing::IsEmpty()) << world << " ranks";
  }
}

TEST_P(Groups, ProcessesConform) {
  const bool local = std::string_view(GetParam()) == "local";
  const std::string name = fresh_job_name();
  const int port = free_port();
  const auto pids = fork_ranks(4, [&](int rank) {
    auto job = comm::connect(local ? local_launch(name, rank, 4) : remote_launch(port, rank, 4),
                             options(milliseconds(60'000)));
    if (!job.ok()) return std::fprintf(stderr, "%s\n", job.status().to_string().c_str()), 2;
    const auto faults = conformance::run_groups(*job.value());
    for (const std::string& fault : faults) std::fprintf(stderr, "%s\n", fault.c_str());
    return faults.empty() ? 0 : 1;
  });
  for (const pid_t pid : pids) EXPECT_EQ(wait_for(pid), 0);
}

TEST_P(Groups, BytesToOtherHostsAreCounted) {
  Jobs jobs = connect_ranks(4);
  std::vector<std::vector<std::string>> faults(4);
  on_threads(4, [&](size_t rank) { faults[rank] = conformance::run_across_hosts(*jobs[rank]); });
  for (const auto& list : faults) EXPECT_THAT(list, testing::IsEmpty());
}

TEST_P(Groups, HostsAreKnownWhereTheirRanksFollowEachOther) {
  const auto found = [&](std::vector<std::pair<int, int>> places) {
    std::vector<std::vector<int>> seen(places.size());
    Jobs jobs = connect_ranks(static_cast<int>(places.size()));
    on_threads(places.size(), [&](size_t rank) {
      comm::LaunchInfo launch;
      std::tie(launch.local_rank, launch.local_world) = places[rank];
      auto hosts = comm::hosts_of_ranks(launch, jobs[rank]->control());
      ASSERT_TRUE(hosts.ok());
      seen[rank] = std::move(hosts).value();
    });
    for (const auto& hosts : seen) EXPECT_EQ(hosts, seen[0]);
    return seen[0];
  };
  using Hosts = std::vector<int>;
  EXPECT_EQ(found({{0, 2}, {1, 2}, {0, 2}, {1, 2}}), (Hosts{0, 0, 1, 1}));
  EXPECT_EQ(found({{0, 3}, {1, 3}, {2, 3}}), (Hosts{0, 0, 0}));
  EXPECT_EQ(found({{0, 1}, {0, 1}}), (Hosts{0, 1}));
  EXPECT_EQ(found({{0, 2}, {1, 2}, {0, 1}}), (Hosts{0, 0, 1}));
  EXPECT_EQ(found({{0, 2}, {0, 2}, {1, 2}, {1, 2}}), Hosts{});  // round-robin over hosts
  EXPECT_EQ(found({{0, 2}, {1, 2}, {0, 2}}), Hosts{});          // a rank is missing
  EXPECT_EQ(found({{0, 0}, {0, 1}}), Hosts{});
}

TEST(Hosts, RanksPerHostAreKnownWhereAllHostsAreAlike) {
  EXPECT_EQ(comm::ranks_per_host({0, 0, 1, 1}), 2);
  EXPECT_EQ(comm::ranks_per_host({0, 0, 0}), 3);
  EXPECT_EQ(comm::ranks_per_host({0, 1}), 1);
  EXPECT_EQ(comm::ranks_per_host({0, 0, 1}), 0);
  EXPECT_EQ(comm::ranks_per_host({0, 1, 1, 1}), 0);
  EXPECT_EQ(comm::ranks_per_host({}), 0);
}

TEST_P(Groups, TheMissingAreNamedByTheirRankInTheJob) {
  Jobs jobs = connect_ranks(4, milliseconds(400));
  auto groups = open_by_parity(jobs);
  std::vector<Status> status(4);
  on_threads(3, [&](size_t rank) { status[rank] = groups[rank]->barrier(); });
  EXPECT_TRUE(status[0].ok()) << status[0].to_string();
  EXPECT_TRUE(status[2].ok()) << status[2].to_string();
  EXPECT_EQ(status[1].kind(), ErrorKind::CollectiveTimeout);
  EXPECT_THAT(status[1].sentence(), HasSubstr("for rank 3"));
}

TEST_P(Groups, AnotherGroupDoesNotMindAGoodbye) {
  Jobs jobs = connect_ranks(4);
  auto groups = open_by_parity(jobs);
  jobs[3].reset();
  const Status waiting = groups[1]->barrier();  // until the goodbye is heard
  EXPECT_EQ(waiting.kind(), ErrorKind::PeerDied);
  EXPECT_THAT(waiting.sentence(), HasSubstr("rank 3 "));
  std::vector<Status> status(2);
  on_threads(2, [&](size_t i) { status[i] = groups[2 * i]->barrier(); });
  for (const Status& each : status) EXPECT_TRUE(each.ok()) << each.to_string();
  EXPECT_TRUE(groups[0]->health().ok());
}

TEST_P(Groups, AFailureEndsAllGroups) {
  Jobs jobs = connect_ranks(4);
  auto groups = open_by_parity(jobs);
  jobs[3]->leave(Status(ErrorKind::BadInput, "DC1001", "the plan is torn"));
  const Status waiting = groups[0]->barrier();  // rank 2 does not come
  EXPECT_EQ(waiting.kind(), ErrorKind::PeerDied);
  EXPECT_THAT(waiting.sentence(), HasSubstr("rank 3 "));
  EXPECT_THAT(waiting.sentence(), HasSubstr("the plan is torn"));
  EXPECT_EQ(groups[0]->health().kind(), ErrorKind::PeerDied);
}

TEST_P(Groups, AbortWakesTheWaiterOfItsGroupOnly) {
  Jobs jobs = connect_ranks(4);
  auto groups = open_by_parity(jobs);
  std::vector<Status> status(4);
  std::atomic<int> inside{0};
  std::thread aborted([&] {
    ++inside;
    status[1] = groups[1]->barrier();
  });
  std::thread waiter([&] {
    ++inside;
    status[0] = groups[0]->barrier();
  });
  while (inside.load() < 2) std::this_thread::yield();
  groups[1]->abort();
  aborted.join();
  status[2] = groups[2]->barrier();
  waiter.join();
  EXPECT_EQ(status[1].kind(), ErrorKind::Unavailable);
  EXPECT_TRUE(status[0].ok()) << status[0].to_string();
  EXPECT_TRUE(status[2].ok()) << status[2].to_string();
}

TEST_P(Groups, DifferentCollectivesAreToldApart) {
  Jobs jobs = connect_ranks(4);
  auto groups = open_by_parity(jobs);
  std::vector<Status> status(4);
  on_threads(4, [&](size_t rank) {
    int64_t word = 0, words[2];
    status[rank] = rank < 3 ? groups[rank]->barrier() : groups[rank]->exchange(&word, 8, words);
  });
  EXPECT_TRUE(status[0].ok()) << status[0].to_string();
  EXPECT_TRUE(status[2].ok()) << status[2].to_string();
  EXPECT_EQ(status[1].kind(), ErrorKind::Internal);
  EXPECT_THAT(status[1].sentence(),
              HasSubstr("rank 3 called exchange where rank 1 called barrier"));
}

TEST_P(Groups, RanksThatNameDifferentMembersAreToldApart) {
  Jobs jobs = connect_ranks(3);
  const std::vector<std::vector<int>> wanted = {{0, 1}, {0, 1, 2}, {1, 2}};
  std::vector<Status> status(3);
  on_threads(
      3, [&](size_t rank) { status[rank] = jobs[rank]->open_communicator(wanted[rank]).status(); });
  for (const Status& each : status) {
    EXPECT_EQ(each.code(), "DC6102");
    EXPECT_THAT(each.sentence(), HasSubstr("called opening a communicator on other values"));
  }
}

TEST_P(Groups, ImpossibleMembersAreRefused) {
  Jobs jobs = connect_ranks(2);
  const std::vector<std::vector<int>> impossible = {{}, {1}, {1, 0}, {0, 0}, {0, 2}, {-1, 0}};
  for (const std::vector<int>& ranks : impossible) {
    const auto opened = jobs[0]->open_communicator(ranks);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.status().code(), "DC6101");
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Groups, testing::Values("local", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace dc::runtime
