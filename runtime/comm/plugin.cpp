#include "runtime/comm/plugin.h"

#include <string>

#include "src/base/plugin.h"

namespace dc::runtime::comm {

base::Result<std::unique_ptr<ProcessGroup>> connect_mpi(const LaunchInfo& launch,
                                                        const CommOptions& options) {
  if (launch.world > 1 &&
      (launch.launcher == Launcher::Torchrun || launch.launcher == Launcher::Dcrun)) {
    return base::Status(base::ErrorKind::Unavailable, "DC6126",
                        "--comm mpi needs ranks that MPI's own launcher started, these came from " +
                            std::string(name(launch.launcher)) +
                            "; start with mpirun, or use --comm local");
  }
  // Global: MPI libraries open components that expect to find its symbols.
  const base::PluginUse use{kMpiPlugin, kMpiEntry, "DC6111", "--comm mpi was asked for",
                            "DCC_WITH_MPI"};
  DC_ASSIGN_OR_RETURN(void* entry, base::open_plugin(use, base::PluginSymbols::Global));
  const auto open = reinterpret_cast<OpenMpiProcessGroup>(entry);
  std::unique_ptr<ProcessGroup> job;
  base::Status status;
  open(launch, options, &job, &status);
  if (!status.ok()) return status;
  return job;
}

}  // namespace dc::runtime::comm
