// dcrun -n: ranks are started, told to stop, and never left behind.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>

#include "tests/runtime/comm/processes.h"

namespace dc::runtime {
namespace {

using testing::HasSubstr;

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class Spawn : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/spawn-" + std::to_string(getpid());
    ranks_ = folder_ + ".ranks";
    errors_ = folder_ + ".stderr";
  }
  void TearDown() override {
    unlink(ranks_.c_str());
    unlink(errors_.c_str());
  }
  // `ignored`: a signal that it is started to ignore, as by nohup; 0: none.
  void start(int ranks, const char* what, int ignored = 0) {
    parent_ = fork();
    if (parent_ != 0) return;
    if (ignored != 0) signal(ignored, SIG_IGN);
    const int file = open(errors_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(file, 2);
    execl(DC_SPAWN_RANKS, DC_SPAWN_RANKS, std::to_string(ranks).c_str(), ranks_.c_str(), what,
          nullptr);
    _exit(127);
  }
  // Until `count` ranks have written their line.
  void wait_for_ranks(int count) {
    for (int i = 0; i < 1000; ++i) {
      pids_.clear();
      std::istringstream lines(read_file(ranks_));
      int rank = 0, world = 0, pid = 0;
      while (lines >> rank >> world >> pid) pids_.push_back(pid);
      if (static_cast<int>(pids_.size()) == count) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << "the ranks did not start: " << read_file(errors_);
  }
  int finish() { return conformance::wait_for(parent_); }
  void expect_nothing_left() {
    for (const int pid : pids_) {
      bool gone = false;
      for (int i = 0; i < 200 && !gone; ++i) {
        gone = kill(pid, 0) != 0 && errno == ESRCH;
        if (!gone) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      EXPECT_TRUE(gone) << "process " << pid << " is still there";
    }
  }
  std::string last_line() {
    std::string text = read_file(errors_);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.substr(text.rfind('\n') + 1);
  }

  std::string folder_, ranks_, errors_;
  pid_t parent_ = -1;
  std::vector<int> pids_;
};

TEST_F(Spawn, AllRanksRunOnce) {
  start(3, "done");
  EXPECT_EQ(finish(), 0);
  const std::string text = read_file(ranks_);
  for (const char* start : {"0 3 ", "1 3 ", "2 3 "}) EXPECT_THAT(text, HasSubstr(start));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
}

TEST_F(Spawn, AStopRequestReachesAllRanks) {
  start(3, "stop");
  wait_for_ranks(3);
  kill(parent_, SIGTERM);
  EXPECT_EQ(finish(), 75);
  EXPECT_THAT(last_line(), HasSubstr("75"));
  expect_nothing_left();
}

// As Ctrl-C on dcc profile: no rank failed.
TEST_F(Spawn, RanksThatASignalEndsAreNoFailure) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    start(2, "plain");
    wait_for_ranks(2);
    kill(parent_, signal);
    EXPECT_EQ(finish(), 128 + signal);
    EXPECT_THAT(last_line(), HasSubstr("ended on request"));
    expect_nothing_left();
    unlink(ranks_.c_str());
  }
}

TEST_F(Spawn, IgnoredSignalsStayIgnored) {
  for (const int signal : {SIGINT, SIGHUP, SIGTSTP}) {
    start(2, "plain", signal);
    wait_for_ranks(2);
    kill(parent_, signal);
    kill(parent_, SIGTERM);  // of signals that wait the one with the lower number comes first
    EXPECT_EQ(finish(), 128 + SIGTERM);
    EXPECT_THAT(last_line(), HasSubstr("ended on request (Terminated)"));
    expect_nothing_left();
    unlink(ranks_.c_str());
  }
}

TEST_F(Spawn, EndsOfRanksAreHeardThoughTheyWereIgnored) {
  start(2, "done", SIGCHLD);
  EXPECT_EQ(finish(), 0);
}

TEST_F(Spawn, ASecondRequestKillsAtOnce) {
  start(2, "deaf");
  wait_for_ranks(2);
  kill(parent_, SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  kill(parent_, SIGTERM);
  EXPECT_EQ(finish(), 128 + SIGTERM);
  expect_nothing_left();
}

TEST_F(Spawn, AKilledRankIsNamedAndTheOthersReport) {
  start(3, "kill-1");
  wait_for_ranks(3);
  EXPECT_EQ(finish(), 83);
  EXPECT_THAT(last_line(), HasSubstr("83"));
  EXPECT_THAT(last_line(), HasSubstr("rank 1 was killed by signal 9"));
  EXPECT_THAT(read_file(errors_), HasSubstr("rank 0: rank 1 (process "));
  EXPECT_THAT(read_file(errors_), HasSubstr("rank 2: rank 1 (process "));
  expect_nothing_left();
}

TEST_F(Spawn, ACauseIsPreferredToItsEffect) {
  start(3, "fail-1");
  wait_for_ranks(3);
  EXPECT_EQ(finish(), 65);
  EXPECT_THAT(read_file(errors_), HasSubstr("torn"));
  expect_nothing_left();
}

TEST_F(Spawn, RanksThatDoNotEndAreKilledAfterTheGrace) {
  start(3, "kill-1-deaf");
  wait_for_ranks(3);
  EXPECT_EQ(finish(), 83);
  EXPECT_THAT(
      last_line(),
      HasSubstr("rank 0 did not end by itself and was killed; rank 1 was killed by signal 9"));
  expect_nothing_left();
}

TEST_F(Spawn, RanksDieWithTheirParent) {
  start(2, "deaf");
  wait_for_ranks(2);
  kill(parent_, SIGKILL);
  EXPECT_EQ(finish(), -SIGKILL);
  expect_nothing_left();
}

}  // namespace
}  // namespace dc::runtime
