#include "runtime/comm/gpu_ranks.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/comm/agreement.h"
#include "runtime/comm/ipc.h"
#include "runtime/comm/nccl.h"
#include "runtime/comm/nccl_library.h"
#include "runtime/device/cuda/cuda_device.h"

namespace dc::runtime::comm {
namespace {

// A rank's GPU, and whether it has NCCL.
struct Equipment {
  device::cuda::Uuid gpu;
  int32_t has_nccl;
};

base::Result<bool> needs_ipc(Communicator& control, device::Device& gpu) {
  const Equipment own{static_cast<device::CudaDevice&>(gpu).uuid(),
                      open_nccl_library().ok() ? 1 : 0};
  std::vector<Equipment> all(static_cast<size_t>(control.size()));
  DC_RETURN_IF_ERROR(control.exchange(&own, sizeof own, all.data()));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].has_nccl == 0) return true;
    for (size_t other = 0; other < rank; ++other)
      if (std::memcmp(&all[rank].gpu, &all[other].gpu, sizeof own.gpu) == 0) return true;
  }
  return false;
}

}  // namespace

base::Result<std::unique_ptr<ProcessGroup>> add_gpus(std::unique_ptr<ProcessGroup> hosts,
                                                     base::Result<GpuOptions> gpu,
                                                     std::string_view backend) {
  Communicator& control = hosts->control();
  DC_RETURN_IF_ERROR(agree(control, gpu.status(), "opening its GPU"));
  bool by_ipc = backend == "local";
  if (backend == "auto" && control.name() == "local") {
    DC_ASSIGN_OR_RETURN(by_ipc, needs_ipc(control, *gpu->device));
  }
  if (by_ipc) return add_ipc(std::move(hosts), std::move(gpu));
  return add_nccl(std::move(hosts), std::move(gpu));
}

}  // namespace dc::runtime::comm
