// Ranks on GPUs: collectives by NCCL, everything else by a communicator of the hosts.
#pragma once

#include <memory>

#include "runtime/comm/gpu_options.h"
#include "runtime/comm/rendezvous.h"

namespace dc::runtime::comm {

// The ranks of `hosts`, connected on the CPU device, whose slabs are now allocated on GPUs and
// whose communicators are NCCL's. `gpu`: what this rank has, or why it has none. Collective: fails
// on all ranks if it does on one. Unavailable (69): DC6160, DC6161; Mismatch (76), DC6162, where
// ranks have different versions of NCCL.
base::Result<std::unique_ptr<ProcessGroup>> add_nccl(std::unique_ptr<ProcessGroup> hosts,
                                                     base::Result<GpuOptions> gpu);

}  // namespace dc::runtime::comm
