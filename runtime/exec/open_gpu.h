// A rank's GPU, with what collectives between GPUs need of it.
#pragma once

#include "runtime/comm/gpu_options.h"
#include "src/base/status.h"

namespace dc::runtime::exec {

// The GPU of a rank that is the `local_rank`-th of its host. Unavailable (69) without a driver, a
// GPU or an NVRTC that can be used.
base::Result<comm::GpuOptions> open_gpu(int local_rank, std::chrono::milliseconds timeout);

}  // namespace dc::runtime::exec
