// The mpi communicator is a separate plug-in, opened only when asked for: dcrun itself
// needs no MPI library.
#pragma once

#include <memory>

#include "runtime/comm/rendezvous.h"

namespace dc::runtime::comm {

inline constexpr const char* kMpiPlugin = "libdcrun_mpi.so";
inline constexpr const char* kMpiEntry = "dcrun_open_mpi";
// The entry point. It writes to *job on success.
using OpenMpiProcessGroup = void (*)(const LaunchInfo& launch, const CommOptions& options,
                                     std::unique_ptr<ProcessGroup>* job, base::Status* status);

// Opens the plug-in (src/base/plugin.h); Unavailable (69) with the reason if it cannot.
base::Result<std::unique_ptr<ProcessGroup>> connect_mpi(const LaunchInfo& launch,
                                                        const CommOptions& options);

}  // namespace dc::runtime::comm
