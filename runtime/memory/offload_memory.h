// OffloadMemory: one rank's memory spaces other than the device's.
#pragma once

#include <memory>
#include <string>

#include "runtime/memory/disk_space.h"
#include "runtime/memory/host_space.h"

namespace dc::runtime::memory {

struct OffloadMemory {
  base::PerSpace<HostSpace> mapped;  // what copies of the device reach; empty: Device, Disk
  std::unique_ptr<DiskSpace> disk;   // null where the plan keeps nothing on disk

  // What the plan asks for. `folder`: where the disk's file goes; Usage (64) if it is empty and the
  // plan needs one. `device`: whose copies reach what is mapped. The plan must outlive the
  // result.
  static base::Result<OffloadMemory> create(const plan::Plan& plan, int rank,
                                            const std::string& folder, device::Device& device);
};

// Whether the space is memory with addresses, as HostSpace gives it.
constexpr bool is_mapped(plan::Space space) {
  return space != plan::Space::Device && space != plan::Space::Disk;
}
int64_t arena_bytes(const plan::Plan& plan, plan::Space space);
plan::Space space_of(const plan::Plan& plan, int32_t tensor);

}  // namespace dc::runtime::memory
