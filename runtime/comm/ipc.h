// Ranks on GPUs of one host, or on one GPU: each maps the slabs of all (CUDA IPC), and collectives
// are copies and sums between them.
#pragma once

#include <memory>

#include "runtime/comm/gpu_options.h"
#include "runtime/comm/rendezvous.h"

namespace dc::runtime::comm {

// The ranks of `hosts`, connected by the local communicator on the CPU device, whose slabs are now
// allocated on GPUs and mapped by all. `gpu`: what this rank has, or why it has none. Collective:
// fails on all ranks if it does on one. Unavailable (69) as in runtime/device/cuda/cuda_sharing.h;
// Unsupported (81), DC6101, for more than kMostMappedRanks or with other hosts.
base::Result<std::unique_ptr<ProcessGroup>> add_ipc(std::unique_ptr<ProcessGroup> hosts,
                                                    base::Result<GpuOptions> gpu);

}  // namespace dc::runtime::comm
