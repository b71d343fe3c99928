// Who started this process, as which rank: read from the environment of dcrun -n, torchrun, Open MPI, MPICH/Intel MPI or Slurm.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"

namespace dc::runtime {

enum class Launcher { Single, Dcrun, Torchrun, OpenMpi, Mpich, Slurm };

struct LaunchInfo {
  Launcher launcher = Launcher::Single;
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;  // ranks of this host
  std::string job;                      // equal on all ranks of this start, different for any other
  bool one_host() const { return local_world == world; }
};
std::string_view name(Launcher launcher);

// BadConfig (78) when two launchers contradict each other, naming the variables.
base::Result<LaunchInfo> detect_launch();

// `dcrun -n N`: starts N copies of this program with the same arguments and waits for all. Forwards SIGTERM and SIGINT; when one rank dies the others
// get a moment to report, then are killed. Returns the exit code of the job. Ranks die with their parent.
int spawn_ranks(int ranks, int argc, char** argv);

}  // namespace dc::runtime
