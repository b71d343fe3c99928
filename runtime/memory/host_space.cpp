#include "runtime/memory/host_space.h"

#include <string>

namespace dc::runtime::memory {

base::Result<HostSpace> HostSpace::create(device::Device& device, int64_t bytes) {
  HostSpace space;
  if (bytes == 0) return space;
  auto memory = device.allocate_host(bytes);
  if (!memory.ok()) {
    return base::Status(base::ErrorKind::OutOfMemory, "DC6701",
                        "there is no host memory for what is offloaded or copied for saving: " +
                            memory.status().sentence() +
                            "; or compile with --offload-space disk, or leave out --save-every, "
                            "which keeps a copy of the state");
  }
  space.memory_ = std::move(memory).value();
  return space;
}

}  // namespace dc::runtime::memory
