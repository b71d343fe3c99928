// Who started this process, as which rank: read from the environment of dcrun -n, torchrun, Open
// MPI, MPICH/Intel MPI or Slurm.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace dc::runtime::comm {

enum class Launcher { Single, Dcrun, Torchrun, OpenMpi, Mpich, Slurm };

// Where the ranks of several hosts meet: MASTER_ADDR and MASTER_PORT.
struct Master {
  std::string host;  // a name or a number
  int port = 0;
  bool store = false;  // torchrun's agent serves its store there; otherwise rank 0 is to listen
  std::string run;     // tells starts of a job that share a master apart
};

struct LaunchInfo {
  Launcher launcher = Launcher::Single;
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;  // ranks of this host
  std::string job;                      // equal on all ranks of this start, different for any other
  std::optional<Master> master = std::nullopt;
  std::string secret = {};  // what only this job knows (job_key.h); empty: nothing was given
  bool one_host() const { return local_world == world; }
  // Whether `dcrun -n` may start ranks: no launcher did, or one that started this process alone.
  bool is_alone() const { return world == 1 && launcher != Launcher::Dcrun; }
};
std::string_view name(Launcher launcher);

// The value of a variable, null if it is not set; getenv but for tests.
using Environment = std::function<const char*(const char* name)>;

// BadConfig (78) when two launchers contradict each other, naming the variables.
base::Result<LaunchInfo> detect_launch();
base::Result<LaunchInfo> detect_launch(const Environment& environment);

// `dcrun -n N`: starts N copies of this program with the same arguments and waits for all; the
// copies see DCRUN_RANK (Launcher::Dcrun) and must not call this again. Passes on SIGTERM and
// SIGINT, a second one kills. When a rank fails the others get 5 s to report, then are killed;
// ranks die with their parent. Returns the exit code of the job and, if it is not 0, says why in a
// last line on stderr.
int spawn_ranks(int ranks, int argc, char** argv);

// The exit code of a job whose ranks ended with these codes; a rank killed by signal S counts as
// -S.
int job_exit_code(const std::vector<int>& codes);

}  // namespace dc::runtime::comm
