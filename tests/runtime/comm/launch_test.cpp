// Which launcher started us, by its variables.
#include "runtime/comm/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "runtime/comm/affinity.h"
#include "runtime/comm/rendezvous.h"

namespace dc::runtime {
namespace {

using Variables = std::map<std::string, std::string>;
using testing::AllOf;
using testing::HasSubstr;

base::Result<comm::LaunchInfo> detect(const Variables& variables) {
  return comm::detect_launch([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Variables operator+(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

const Variables kTorchrun{{"RANK", "1"},
                          {"WORLD_SIZE", "2"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "host"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "none"},
                          {"TORCHELASTIC_RESTART_COUNT", "0"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "3"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_NAMESPACE", "1243873281"}};
const Variables kMpich{
    {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSlurm{{"SLURM_PROCID", "5"},  {"SLURM_NTASKS", "7"},
                       {"SLURM_LOCALID", "1"}, {"SLURM_JOB_ID", "77"},
                       {"SLURM_STEP_ID", "2"}, {"SLURM_NNODES", "4"},
                       {"SLURM_NODEID", "2"},  {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}};

void expect_launch(const Variables& variables, comm::Launcher launcher, int rank, int world,
                   int local_rank, int local_world) {
  const auto result = detect(variables);
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  const comm::LaunchInfo& info = result.value();
  EXPECT_EQ(info.launcher, launcher);
  EXPECT_EQ(info.rank, rank);
  EXPECT_EQ(info.world, world);
  EXPECT_EQ(info.local_rank, local_rank);
  EXPECT_EQ(info.local_world, local_world);
  EXPECT_FALSE(info.job.empty());
}

TEST(Launch, NoLauncher) { expect_launch({}, comm::Launcher::Single, 0, 1, 0, 1); }
TEST(Launch, Dcrun) {
  expect_launch({{"DCRUN_RANK", "1"}, {"DCRUN_WORLD", "3"}, {"DCRUN_JOB", "a"}},
                comm::Launcher::Dcrun, 1, 3, 1, 3);
}
TEST(Launch, Torchrun) { expect_launch(kTorchrun, comm::Launcher::Torchrun, 1, 2, 1, 2); }
TEST(Launch, OpenMpi) { expect_launch(kOpenMpi, comm::Launcher::OpenMpi, 3, 4, 1, 2); }
TEST(Launch, Mpich) { expect_launch(kMpich, comm::Launcher::Mpich, 0, 2, 0, 2); }
TEST(Launch, Slurm) { expect_launch(kSlurm, comm::Launcher::Slurm, 5, 7, 1, 2); }
TEST(Launch, SlurmOnOneNode) {
  expect_launch({{"SLURM_PROCID", "1"},
                 {"SLURM_STEP_NUM_TASKS", "2"},
                 {"SLURM_NTASKS", "9"},
                 {"SLURM_LOCALID", "1"},
                 {"SLURM_STEP_NUM_NODES", "1"},
                 {"SLURM_JOB_ID", "1"},
                 {"SLURM_STEP_ID", "0"}},
                comm::Launcher::Slurm, 1, 2, 1, 2);
}
TEST(Launch, RankAndWorldSizeByHand) {
  expect_launch(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1234"}},
      comm::Launcher::Torchrun, 1, 2, 1, 2);
}

TEST(Launch, TheMasterIsWhereRanksOfSeveralHostsMeet) {
  const Variables agent{{"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  const auto torchrun = detect(kTorchrun + agent);
  ASSERT_TRUE(torchrun.ok() && torchrun->master);
  EXPECT_EQ(torchrun->master->host, "host");
  EXPECT_EQ(torchrun->master->port, 29500);
  EXPECT_TRUE(torchrun->master->store);
  EXPECT_FALSE(detect(kTorchrun)->master->store);
  // The address may be spelled differently on each host.
  Variables elsewhere = kTorchrun;
  elsewhere["MASTER_ADDR"] = "127.0.0.1";
  EXPECT_EQ(detect(elsewhere)->master->run, detect(kTorchrun)->master->run);

  elsewhere["MASTER_ADDR"] = "[2001:db8::1]";  // as in a URL
  EXPECT_EQ(detect(elsewhere)->master->host, "2001:db8::1");

  const Variables master{{"MASTER_ADDR", "host"}, {"MASTER_PORT", "1234"}};
  for (const Variables& other : {kOpenMpi, kMpich, kSlurm}) {
    EXPECT_FALSE(detect(other)->master);
    EXPECT_EQ(detect(other + master)->master->port, 1234);
  }
  for (const char* port : {"0", "65536", "x"}) {
    Variables wrong = kTorchrun;
    wrong["MASTER_PORT"] = port;
    EXPECT_FALSE(detect(wrong).ok()) << port;
  }
}

TEST(Launch, ACommunicatorForEveryLauncher) {
  const auto chosen = [](const Variables& variables) {
    return comm::choose_backend(*detect(variables));
  };
  EXPECT_EQ(chosen(kTorchrun), "local");
  EXPECT_EQ(chosen(kMpich), "local");
  EXPECT_EQ(chosen(kOpenMpi), "mpi");
  EXPECT_EQ(chosen(kSlurm), "tcp");
  Variables two_hosts = kTorchrun;
  two_hosts["LOCAL_RANK"] = "0";
  two_hosts["LOCAL_WORLD_SIZE"] = "1";
  EXPECT_EQ(chosen(two_hosts), "tcp");
}

TEST(Launch, JobsOfDifferentStartsDiffer) {
  const auto job = [](const Variables& changed, const Variables& base) {
    return detect(changed + base).value().job;
  };
  EXPECT_NE(job({{"TORCHELASTIC_RESTART_COUNT", "1"}}, kTorchrun), job({}, kTorchrun));
  EXPECT_NE(job({{"MASTER_PORT", "29501"}}, kTorchrun), job({}, kTorchrun));
  EXPECT_NE(job({{"PMIX_NAMESPACE", "9"}}, kOpenMpi), job({}, kOpenMpi));
  EXPECT_NE(job({{"SLURM_STEP_ID", "3"}}, kSlurm), job({}, kSlurm));
  EXPECT_EQ(job({{"RANK", "0"}, {"LOCAL_RANK", "0"}}, kTorchrun), job({}, kTorchrun));
}

// Hydra has a separate proxy on each host; ranks that do not share one still are of one job.
TEST(Launch, MpichNamesAJobOfSeveralHostsByWhereItMeets) {
  const auto job = [](Variables changed) {
    const Variables master{{"MASTER_ADDR", "host"}, {"MASTER_PORT", "29500"}};
    return detect(std::move(changed) + kMpich + master)->job;
  };
  EXPECT_EQ(job({{"MPI_LOCALNRANKS", "1"}}), "mpich-host:29500");
  EXPECT_EQ(job({{"MPI_LOCALNRANKS", "1"}, {"PMI_JOBID", "7"}}), "mpich-7");
  EXPECT_NE(job({}), "mpich-host:29500");  // of this host's proxy
}

TEST(Launch, AnInnerLauncherWinsInsideASlurmStep) {
  expect_launch(kOpenMpi + kSlurm, comm::Launcher::OpenMpi, 3, 4, 1, 2);
  expect_launch(kTorchrun + kSlurm, comm::Launcher::Torchrun, 1, 2, 1, 2);
  expect_launch(Variables{{"DCRUN_RANK", "0"}, {"DCRUN_WORLD", "2"}, {"DCRUN_JOB", "a"}} + kSlurm,
                comm::Launcher::Dcrun, 0, 2, 0, 2);
}

// As in a shell of salloc or srun: dcrun -n starts ranks there, which are of its job alone.
TEST(Launch, TheOnlyProcessOfALauncherMayStartRanks) {
  const Variables by_hand{{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  const Variables shell{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_ID", "0"}};
  const Variables rank{{"DCRUN_RANK", "1"}, {"DCRUN_WORLD", "2"}, {"DCRUN_JOB", "a"}};
  for (const Variables& launcher : {Variables{}, by_hand, shell}) {
    EXPECT_TRUE(detect(launcher)->is_alone());
    expect_launch(rank + launcher, comm::Launcher::Dcrun, 1, 2, 1, 2);
    EXPECT_FALSE(detect(rank + launcher)->is_alone());
  }
  for (const Variables& launcher : {kTorchrun, kOpenMpi, kMpich, kSlurm})
    EXPECT_FALSE(detect(launcher)->is_alone());
  EXPECT_FALSE(detect({{"DCRUN_RANK", "0"}, {"DCRUN_WORLD", "1"}, {"DCRUN_JOB", "a"}})->is_alone());
}

TEST(Launch, ABatchScriptIsNoStep) {
  expect_launch({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "1"}},
                comm::Launcher::Single, 0, 1, 0, 1);
}
TEST(Launch, PmiVariablesOfSlurmAreSlurms) {
  expect_launch(Variables{{"PMI_RANK", "5"}, {"PMI_SIZE", "7"}} + kSlurm, comm::Launcher::Slurm, 5,
                7, 1, 2);
}

void expect_bad(const Variables& variables, std::initializer_list<const char*> named) {
  const auto result = detect(variables);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().kind(), base::ErrorKind::BadConfig);
  for (const char* name : named) EXPECT_THAT(result.status().sentence(), HasSubstr(name));
}

TEST(Launch, ContradictionsNameTheVariables) {
  expect_bad(kTorchrun + kOpenMpi,
             {"RANK=1", "WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4"});
  expect_bad(kTorchrun + kMpich, {"RANK=1", "PMI_RANK=0"});
  expect_bad(kMpich + kOpenMpi, {"PMI_SIZE=2", "OMPI_COMM_WORLD_SIZE=4"});
  expect_bad(
      Variables{
          {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1"}} +
          kSlurm,
      {"RANK=0", "SLURM_PROCID=5"});
}
TEST(Launch, AgreeingVariablesAreNoContradiction) {
  expect_launch(
      Variables{
          {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1"}} +
          kOpenMpi,
      comm::Launcher::OpenMpi, 3, 4, 1, 2);
}
TEST(Launch, IncompleteOrImpossibleVariables) {
  expect_bad({{"RANK", "0"}}, {"WORLD_SIZE", "RANK"});
  expect_bad({{"RANK", "2"}, {"WORLD_SIZE", "2"}}, {"RANK=2"});
  expect_bad({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, {"MASTER_ADDR"});
  expect_bad({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "far"}, {"MASTER_PORT", "1"}},
             {"LOCAL_WORLD_SIZE"});
  expect_bad(Variables{{"OMPI_COMM_WORLD_RANK", "x"}} + kOpenMpi, {"OMPI_COMM_WORLD_RANK=x"});
  expect_bad({{"DCRUN_RANK", "0"}, {"DCRUN_WORLD", "2"}}, {"DCRUN_JOB"});
  expect_bad(Variables{{"SLURM_STEP_TASKS_PER_NODE", "?"}} + kSlurm, {"SLURM_STEP_TASKS_PER_NODE"});
}

TEST(JobExitCode, PrefersACauseOverItsEffect) {
  EXPECT_EQ(comm::job_exit_code({0, 0}), 0);
  EXPECT_EQ(comm::job_exit_code({75, 75}), 75);
  EXPECT_EQ(comm::job_exit_code({83, 66, 65}), 66);
  EXPECT_EQ(comm::job_exit_code({0, -9}), 83);
  EXPECT_EQ(comm::job_exit_code({83, -11, 83}), 83);
  EXPECT_EQ(comm::job_exit_code({-9, 70}), 70);
}

TEST(Affinity, RanksGetDisjointCores) {
  std::vector<comm::Core> eight;  // four cores with two logical processors each
  eight.reserve(8);
  for (int cpu = 0; cpu < 8; ++cpu) eight.push_back({cpu, cpu % 4});
  EXPECT_EQ(comm::choose_cores(eight, 0, 4, 1), (std::vector<int>{0, 4}));
  EXPECT_EQ(comm::choose_cores(eight, 3, 4, 1), (std::vector<int>{3, 7}));
  EXPECT_EQ(comm::choose_cores(eight, 1, 2, 2), (std::vector<int>{2, 3, 5}));
  EXPECT_EQ(comm::choose_cores({{0, 0}, {1, 1}}, 1, 2, 1), (std::vector<int>{1}));
  EXPECT_TRUE(comm::choose_cores({{0, 0}, {1, 1}}, 0, 3, 1).empty());
  EXPECT_TRUE(comm::choose_cores({{0, 0}, {1, 1}}, 0, 2, 2).empty());
}

}  // namespace
}  // namespace dc::runtime
