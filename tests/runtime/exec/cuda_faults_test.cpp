// What ends a run of ranks on GPUs, and what each of them says, by NCCL and by CUDA IPC: on the
// doubles of the driver, NVRTC and NCCL (tests/double), ranks as processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "runtime/comm/ipc.h"
#include "runtime/comm/nccl.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/open_gpu.h"
#include "src/base/file.h"
#include "tests/runtime/comm/processes.h"
#include "tests/runtime/exec/hand_plan.h"
#include "tests/src/archive/temporary_folder.h"

namespace dc::runtime {
namespace {

using base::Status;
using std::chrono::milliseconds;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int64_t kElements = 1000;
constexpr int kSteps = 12;

// A sum over all ranks, for which compute waits.
class SumOfRanks : public test::HandPlan {
 public:
  explicit SumOfRanks(int world) : HandPlan(world) {
    const int32_t value = tensor("value", base::DType::F32, {kElements});
    signal(0, 0);
    wait(0, 1);
    collective(plan::CollectiveKind::AllReduce, value, value, kElements,
               (kElements + world - 1) / world);
    signal(1, 1);
    wait(1, 0);
  }
};

// What carries the collectives.
enum class Carrier { Nccl, Ipc };
std::string name_of(const testing::TestParamInfo<Carrier>& carrier) {
  return carrier.param == Carrier::Nccl ? "Nccl" : "Ipc";
}

// What happens to one rank of a run.
struct Fault {
  int rank = 1;
  const char *variable = nullptr, *value = nullptr;  // of that rank's environment
  std::function<void(int step)> before_step = {};    // on that rank
  milliseconds timeout{20'000};
  int steps = kSteps;  // of that rank
};

Status run_rank(Carrier carrier, const Fault& fault, const std::string& job_name, int rank,
                int world) {
  if (rank == fault.rank && fault.variable != nullptr) setenv(fault.variable, fault.value, 1);
  DC_ASSIGN_OR_RETURN(auto hosts,
                      comm::connect(conformance::local_launch(job_name, rank, world), {}));
  const auto add = carrier == Carrier::Nccl ? comm::add_nccl : comm::add_ipc;
  DC_ASSIGN_OR_RETURN(auto job, add(std::move(hosts), exec::open_gpu(rank, fault.timeout)));
  const SumOfRanks hand(world);
  const auto run = [&]() -> Status {
    DC_ASSIGN_OR_RETURN(const comm::Slab slab, job->allocate(hand.plan.arena_bytes[0]));
    DC_ASSIGN_OR_RETURN(const auto executor, exec::Executor::prepare(hand.plan, *job, slab, {}));
    const int steps = rank == fault.rank ? fault.steps : kSteps;
    for (int step = 0; step < steps; ++step) {
      if (rank == fault.rank && fault.before_step) fault.before_step(step);
      DC_RETURN_IF_ERROR(executor->run(0));
    }
    return executor->finish();
  };
  Status status = run();
  if (!status.ok()) job->leave(status);
  return status;
}

struct End {
  int code = 0;
  std::string text;
  std::filesystem::file_time_type at{};  // when it knew
};

// How each rank ends.
std::vector<End> ends_of(Carrier carrier, const Fault& fault, int world = 2) {
  const tests::TemporaryFolder folder;
  setenv("DCC_CACHE_DIR", (folder / "cache").c_str(), 1);
  const auto path = [&](int rank) { return folder / std::to_string(rank); };
  const std::string name = conformance::fresh_job_name();
  const std::vector<pid_t> pids = conformance::fork_ranks(world, [&](int rank) {
    const Status status = run_rank(carrier, fault, name, rank, world);
    (void)base::write_file_atomically(path(rank), status.to_string());
    return status.ok() ? 0 : base::exit_code(status.kind());
  });
  std::vector<End> ends;
  for (int rank = 0; rank < world; ++rank) {
    End end{conformance::wait_for(pids[static_cast<size_t>(rank)]), ""};
    if (auto text = base::read_file(path(rank)); text.ok()) {
      end.text = *text;
      end.at = std::filesystem::last_write_time(path(rank));
    }
    ends.push_back(std::move(end));
  }
  return ends;
}

class CudaFaults : public testing::TestWithParam<Carrier> {};
INSTANTIATE_TEST_SUITE_P(Carriers, CudaFaults, testing::Values(Carrier::Nccl, Carrier::Ipc),
                         name_of);

TEST_P(CudaFaults, WithoutOneAllRanksEndWell) {
  for (const End& end : ends_of(GetParam(), {}, 3)) EXPECT_EQ(end.code, 0) << end.text;
}

TEST_P(CudaFaults, ARankThatIsKilledIsNamedByItsPeers) {
  const auto begin = Clock::now();
  Fault fault;
  fault.before_step = [](int step) {
    if (step == 3) raise(SIGKILL);
  };
  const auto ends = ends_of(GetParam(), fault, 3);
  EXPECT_EQ(ends[1].code, -SIGKILL);
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(ends[rank].code, 83) << ends[rank].text;
    EXPECT_THAT(ends[rank].text, HasSubstr("DC6104"));
    EXPECT_THAT(ends[rank].text, HasSubstr("rank 1"));
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));
}

// NCCL still gives the stream what it was asked for when the rank learns that a peer is gone: the
// stream, and what it records, must be there until NCCL is ended.
TEST(CudaFaultsOfNcclAborts, WaitForWhatNcclStillIssues) {
  setenv("DOUBLE_NCCL_ISSUE_US", "300000", 1);
  Fault fault;
  fault.before_step = [](int) { raise(SIGKILL); };
  const auto ends = ends_of(Carrier::Nccl, fault);
  unsetenv("DOUBLE_NCCL_ISSUE_US");
  EXPECT_EQ(ends[0].code, 83) << ends[0].text;
  EXPECT_THAT(ends[0].text, HasSubstr("rank 1"));
}

// A GPU whose calls fail from one on, as after an Xid: of a rank that issues its step, waits for
// it, or orders its streams.
class CudaFaultsOfLostGpus : public testing::TestWithParam<std::tuple<Carrier, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Calls, CudaFaultsOfLostGpus,
                         testing::Values(std::tuple(Carrier::Nccl, "cuStreamWriteValue32:7:719"),
                                         std::tuple(Carrier::Nccl, "cuStreamWriteValue32:7:46"),
                                         std::tuple(Carrier::Nccl, "cuEventRecord:9:214"),
                                         std::tuple(Carrier::Nccl, "cuStreamWaitEvent:9:999"),
                                         std::tuple(Carrier::Ipc, "cuStreamWriteValue32:7:719"),
                                         std::tuple(Carrier::Ipc, "cuStreamWaitValue32:8:46"),
                                         std::tuple(Carrier::Ipc, "cuLaunchKernel:5:719"),
                                         std::tuple(Carrier::Ipc, "cuMemcpyAsync:6:700"),
                                         std::tuple(Carrier::Ipc, "cuStreamWaitEvent:9:999")));
TEST_P(CudaFaultsOfLostGpus, TheRankSaysSoAndIsNamedByItsPeersWithinFiveSeconds) {
  const auto [carrier, call] = GetParam();
  const auto ends = ends_of(carrier, {1, "DOUBLE_FAIL", call});
  EXPECT_EQ(ends[1].code, 69) << ends[1].text;
  EXPECT_THAT(ends[1].text, HasSubstr("DC6143"));
  EXPECT_EQ(ends[0].code, 83) << ends[0].text;
  EXPECT_THAT(ends[0].text, HasSubstr("rank 1"));
  EXPECT_THAT(ends[0].text, HasSubstr("failed on the GPU"));
  EXPECT_LT(ends[0].at - ends[1].at, std::chrono::seconds(5));
}

TEST_P(CudaFaults, ACollectiveThatARankDoesNotCallNamesIt) {
  Fault fault;
  fault.timeout = milliseconds(700);
  fault.before_step = [](int step) {
    if (step == 4) std::this_thread::sleep_for(std::chrono::seconds(3));
  };
  const auto ends = ends_of(GetParam(), fault, 3);
  for (const size_t rank : {0, 2}) {
    EXPECT_THAT(ends[rank].code, testing::AnyOf(82, 83)) << ends[rank].text;
    EXPECT_THAT(ends[rank].text, HasSubstr("rank 1, which did not arrive"));
  }
  EXPECT_TRUE(ends[0].code == 82 || ends[2].code == 82);
  EXPECT_EQ(ends[1].code, 83) << ends[1].text;
}

// The others wait for a rank that is done.
TEST(CudaFaultsOfIpc, ARankThatLeavesInOrderIsNamedByThoseWhoWaitForIt) {
  Fault fault;
  fault.steps = 5;
  const auto ends = ends_of(Carrier::Ipc, fault, 3);
  EXPECT_EQ(ends[1].code, 0) << ends[1].text;
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(ends[rank].code, 83) << ends[rank].text;
    EXPECT_THAT(ends[rank].text, HasSubstr("left before the others were done"));
  }
}

// A rank that fails lets its own streams go on, and they tell the peers that it has come: what
// these sum then must not count.
TEST(CudaFaultsOfIpc, NoRankEndsWellWithWhatAFailedRankLeftBehind) {
  for (int number = 2; number < 14; ++number) {
    const std::string call = "cuStreamWaitValue32:" + std::to_string(number) + ":46";
    const auto ends = ends_of(Carrier::Ipc, {1, "DOUBLE_FAIL", call.c_str()});
    EXPECT_EQ(ends[1].code, 69) << ends[1].text;
    EXPECT_EQ(ends[0].code, 83) << call << ": " << ends[0].text;
  }
}

struct RankCase {
  const char* name;
  Fault fault;
  int code;                     // of that rank
  const char *text, *of_peers;  // that it says, and that its peers say
  int code_of_peers;
};
void expect_told(Carrier carrier, const RankCase& one) {
  const auto ends = ends_of(carrier, one.fault);
  const auto rank = static_cast<size_t>(one.fault.rank);
  EXPECT_EQ(ends[rank].code, one.code) << ends[rank].text;
  EXPECT_THAT(ends[rank].text, HasSubstr(one.text));
  EXPECT_EQ(ends[1 - rank].code, one.code_of_peers) << ends[1 - rank].text;
  EXPECT_THAT(ends[1 - rank].text, HasSubstr(one.of_peers));
}

class CudaFaultsOfOpeningIpc : public testing::TestWithParam<RankCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, CudaFaultsOfOpeningIpc,
    testing::Values(
        RankCase{"NoRegistration",
                 {1, "DOUBLE_FAIL", "cuMemHostRegister:1:801"},
                 69,
                 "DC6149",
                 "DC6301",
                 69},
        RankCase{
            "NoExport", {0, "DOUBLE_FAIL", "cuIpcGetMemHandle:1:801"}, 69, "DC6149", "DC6301", 69},
        RankCase{"NoImport",
                 {1, "DOUBLE_FAIL", "cuIpcOpenMemHandle:1:201"},
                 69,
                 "CUDA_VISIBLE_DEVICES",
                 "DC6301",
                 69},
        RankCase{"NoGpu", {1, "DOUBLE_GPUS", "0"}, 69, "DC6142", "DC6301", 69},
        RankCase{"NoMemory", {0, "DOUBLE_MEMORY", "1000000"}, 80, "DC6144", "DC6301", 80}),
    [](const auto& info) { return info.param.name; });
TEST_P(CudaFaultsOfOpeningIpc, AreToldByTheRankAndNameItToItsPeers) {
  expect_told(Carrier::Ipc, GetParam());
}

class CudaFaultsOfNccl : public testing::TestWithParam<RankCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, CudaFaultsOfNccl,
    testing::Values(
        RankCase{"LostConnection", {1, "DOUBLE_NCCL_ERROR", "1:3:6"}, 83, "DC6163", "rank 1", 83},
        RankCase{"InternalError", {1, "DOUBLE_NCCL_ERROR", "1:3:3"}, 69, "DC6163", "rank 1", 83},
        RankCase{"CallFails", {0, "DOUBLE_FAIL", "ncclGroupEnd:4:3"}, 69, "DC6163", "rank 0", 83},
        RankCase{"SameGpu",
                 {1, "DOUBLE_FAIL", "ncclCommInitRankConfig:1:5"},
                 69,
                 "a separate GPU",
                 "rank 1",
                 83},
        RankCase{"NoId", {0, "DOUBLE_FAIL", "ncclGetUniqueId:1:2"}, 69, "DC6163", "DC6301", 69},
        RankCase{"OtherVersion",
                 {1, "DOUBLE_NCCL", "22705"},
                 76,
                 "rank 0 has NCCL 2.28.9",
                 "rank 1 has NCCL 2.27.5",
                 76},
        RankCase{
            "OldVersion", {1, "DOUBLE_NCCL", "21805"}, 69, "NCCL 2.18.5 is too old", "DC6301", 69},
        RankCase{"NoGpu", {1, "DOUBLE_GPUS", "0"}, 69, "DC6142", "DC6301", 69},
        RankCase{"NoMemory", {0, "DOUBLE_MEMORY", "3000000"}, 80, "DC6144", "DC6301", 80}),
    [](const auto& info) { return info.param.name; });

TEST_P(CudaFaultsOfNccl, AreToldByTheRankAndNameItToItsPeers) {
  expect_told(Carrier::Nccl, GetParam());
}

// Memory that cannot be registered is used all the same.
TEST(CudaFaultsOfNcclMemory, NeedNotBeRegistered) {
  for (const End& end :
       ends_of(Carrier::Nccl, {1, "DOUBLE_FAIL", "ncclCommRegister:1:1,ncclCommRegister:2:1"}))
    EXPECT_EQ(end.code, 0) << end.text;
}

}  // namespace
}  // namespace dc::runtime
