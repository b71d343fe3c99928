// What ranks on GPUs need besides the communicators of their hosts.
#pragma once

#include <chrono>
#include <memory>

#include "runtime/comm/device_sums.h"
#include "runtime/device/device.h"

namespace dc::runtime::comm {

struct GpuOptions {
  device::Device* device = nullptr;           // of kind Cuda, of this rank; outlives the job
  std::unique_ptr<DeviceSums> sums;           // on that device
  std::chrono::milliseconds timeout{600000};  // as CommOptions has it
};

}  // namespace dc::runtime::comm
