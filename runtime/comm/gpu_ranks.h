// Ranks on GPUs: collectives between GPUs, everything else by a communicator of the hosts.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/comm/gpu_options.h"
#include "runtime/comm/rendezvous.h"

namespace dc::runtime::comm {

// The ranks of `hosts`, connected on the CPU device as `backend` says (CommOptions), whose slabs
// are now allocated on GPUs. Collectives are CUDA IPC's (ipc.h) where `backend` is "local", or is
// "auto", all ranks share this host, and some of them share a GPU or there is no NCCL for one;
// otherwise NCCL's (nccl.h). `gpu`: what this rank has, or why it has none. Collective: fails on
// all ranks if it does on one. As add_ipc() and add_nccl().
base::Result<std::unique_ptr<ProcessGroup>> add_gpus(std::unique_ptr<ProcessGroup> hosts,
                                                     base::Result<GpuOptions> gpu,
                                                     std::string_view backend);

}  // namespace dc::runtime::comm
