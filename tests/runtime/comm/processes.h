// Ranks as forked processes of a test.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/rendezvous.h"

namespace dc::runtime::conformance {

comm::LaunchInfo local_launch(const std::string& job, int rank, int world);
std::string fresh_job_name();
// Ranks of different hosts that meet at a port of this one, as variables set by hand say it.
comm::LaunchInfo remote_launch(int port, int rank, int world);
int free_port();

// Forks one process per rank; `body` returns its exit code. The caller waits with wait_for.
std::vector<pid_t> fork_ranks(int world, const std::function<int(int rank)>& body);
// The exit code, -S if signal S killed it.
int wait_for(pid_t pid);

}  // namespace dc::runtime::conformance
