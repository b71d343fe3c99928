// What communicators of some of the ranks must do, written once for every backend.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/rendezvous.h"

namespace dc::runtime::conformance {

// Splits the ranks of a job into groups in several ways. In each, all groups run the whole suite at
// the same time, and while they do, a communicator of all ranks sums. The texts say what was wrong.
std::vector<std::string> run_groups(comm::ProcessGroup& job);

// Four ranks on two hosts: what each is counted to send to the other host, collective by
// collective, against figures worked out by hand. Sets the job's hosts.
std::vector<std::string> run_across_hosts(comm::ProcessGroup& job);

// The ranks for which colour(rank) is that of `rank`.
std::vector<int> ranks_like(int rank, int world, int (*colour)(int rank, int world));

}  // namespace dc::runtime::conformance
