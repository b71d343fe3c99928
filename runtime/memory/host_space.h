// HostSpace: the arena of memory space `host`, private to this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/device/device.h"
#include "src/base/status.h"

namespace dc::runtime::memory {

class HostSpace {
 public:
  // Zero-filled, aligned to a page, and allocated so that the device can copy from and to it.
  // OutOfMemory (80) if there is none.
  static base::Result<HostSpace> create(device::Device& device, int64_t bytes);
  std::byte* base() const { return memory_ ? memory_->base() : nullptr; }  // null if empty
  int64_t bytes() const { return memory_ ? memory_->bytes() : 0; }

 private:
  std::unique_ptr<device::DeviceMemory> memory_;
};

}  // namespace dc::runtime::memory
