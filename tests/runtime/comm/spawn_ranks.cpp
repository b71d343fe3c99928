// A program for spawn_test: `spawn_ranks N FILE WHAT` starts itself N times; every rank appends a
// line to FILE and does WHAT.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/comm/rendezvous.h"

namespace {

volatile sig_atomic_t asked = 0;

void append(const char* path, const std::string& line) {
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (write(file, line.data(), line.size()) < 0) std::abort();
  close(file);
}

// Waits for peers for ever, as a rank in the middle of a run does.
int wait_in_barrier(const dc::runtime::comm::LaunchInfo& launch, const std::string& what) {
  auto job = dc::runtime::comm::connect(launch, {});
  if (!job.ok()) return 2;
  if (what == "kill-1" && launch.rank == 1) raise(SIGKILL);
  if (what == "fail-1" && launch.rank == 1) {
    job.value()->leave(dc::base::Status(dc::base::ErrorKind::BadInput, "DC1001", "torn"));
    return 65;
  }
  for (;;) {
    const dc::base::Status status = job.value()->control().barrier();
    if (status.ok()) continue;
    std::fprintf(stderr, "rank %d: %s\n", launch.rank, status.sentence().c_str());
    return dc::base::exit_code(status.kind());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 64;
  const auto launch = dc::runtime::comm::detect_launch();
  if (!launch.ok()) return dc::base::exit_code(launch.status().kind());
  if (launch.value().launcher != dc::runtime::comm::Launcher::Dcrun)
    return dc::runtime::comm::spawn_ranks(std::atoi(argv[1]), argc, argv);
  const std::string what = argv[3];
  struct sigaction action {};
  action.sa_handler = [](int) { asked = 1; };
  if (what == "stop") sigaction(SIGTERM, &action, nullptr);
  if (what == "deaf" || what == "kill-1-deaf") signal(SIGTERM, SIG_IGN);
  append(argv[2], std::to_string(launch.value().rank) + " " + std::to_string(launch.value().world) +
                      " " + std::to_string(getpid()) + "\n");
  if (what == "done") return 0;
  if (what == "kill-1-deaf" && launch.value().rank == 1) raise(SIGKILL);
  if (what == "kill-1" || what == "fail-1") return wait_in_barrier(launch.value(), what);
  while (asked == 0) pause();
  return 75;
}
