// What a profile says about where it was measured: the CPU and its cores, the build of this
// program, the communicator, the launcher, ranks, threads and the kind of device.
#pragma once

#include <unistd.h>

#include <string>

#include "runtime/comm/rendezvous.h"
#include "runtime/measure/measure.h"
#include "src/base/build_id.h"
#include "src/base/measurements.h"

namespace dc::runtime::measure {

inline base::MachineIdentity machine_of(const comm::LaunchInfo& launch, comm::ProcessGroup& job,
                                        int threads, int ranks_per_host) {
  return {cpu_name(),
          std::string(base::build_id()),
          std::string(job.name()),
          std::string(comm::name(launch.launcher)),
          static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN)),
          launch.world,
          threads,
          job.device().kind(),
          ranks_per_host,
          job.device().gpu()};
}

}  // namespace dc::runtime::measure
