// How the hosts of a job and the plan's mesh of hosts agree; and what the ranks of each host sent
// to other hosts, in the steps of one start of the job.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"

namespace dc::runtime::train {

struct AcrossHosts {
  struct Host {
    int first_rank = 0, ranks = 0;
    int64_t bytes = 0;  // payload, over all steps
  };
  int64_t step = 0;   // the last one
  int64_t steps = 0;  // that this start did
  std::vector<Host> hosts;
};

// `hosts`: the host of each rank, ascending from 0; `sent`: bytes by rank.
AcrossHosts across_hosts(std::span<const int> hosts, std::span<const int64_t> sent, int64_t step,
                         int64_t steps);

// What to tell about a plan that shards inside hosts and whose shards lie on several hosts of this
// job, so that every gather crosses hosts. Empty if they do not, or if hosts are not known.
// `hosts`: as above, maybe empty.
std::string shards_across_hosts(const plan::Plan& plan, std::span<const int> hosts);

}  // namespace dc::runtime::train
