#include "tests/runtime/comm/processes.h"

#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace dc::runtime::conformance {

comm::LaunchInfo local_launch(const std::string& job, int rank, int world) {
  return comm::LaunchInfo{comm::Launcher::Dcrun, rank, world, rank, world, job};
}

std::string fresh_job_name() {
  static int count = 0;
  return "test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

comm::LaunchInfo remote_launch(int port, int rank, int world) {
  return comm::LaunchInfo{comm::Launcher::Torchrun,
                          rank,
                          world,
                          0,
                          1,
                          "by-hand",
                          comm::Master{"127.0.0.1", port, false, "by-hand"}};
}

int free_port() {
  const int probe = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(probe, reinterpret_cast<sockaddr*>(&address), size) != 0) std::abort();
  getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size);
  close(probe);
  return ntohs(address.sin_port);
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
