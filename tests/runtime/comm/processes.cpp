#include "tests/runtime/comm/processes.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace dc::runtime::conformance {

LaunchInfo local_launch(const std::string& job, int rank, int world) {
  return LaunchInfo{Launcher::Dcrun, rank, world, rank, world, job};
}

std::string fresh_job_name() {
  static int count = 0;
  return "test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

std::vector<pid_t> fork_ranks(int world, const std::function<int(int rank)>& body) {
  std::vector<pid_t> pids;
  std::fflush(nullptr);
  for (int rank = 0; rank < world; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int code = body(rank);
      std::fflush(nullptr);
      _exit(code);
    }
    pids.push_back(pid);
  }
  return pids;
}

int wait_for(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace dc::runtime::conformance
