// Memory that several ranks of a host reach: of a GPU by CUDA's handles for other processes, of the
// host by registering what all of them map.
#pragma once

#include <memory>

#include "runtime/device/cuda/cuda_device.h"

namespace dc::runtime::device {

// An allocation is handed to other processes whole, with whatever shares its pages. So what is to
// be exported is allocated in multiples of so many bytes, and shares them with nothing.
inline constexpr int64_t kExportGranularity = int64_t{2} << 20;

// A handle of an allocation of this device, for other processes of this host and user; it is valid
// as long as the allocation. Unavailable (69), DC6149.
base::Result<cuda::IpcHandle> export_memory(const CudaDevice& device, const DeviceMemory& memory);
// The `bytes` of an allocation of another process, of this or another GPU, for this device. They
// are that process's to give back: it must not before this object is gone. Unavailable (69),
// DC6149.
base::Result<std::unique_ptr<DeviceMemory>> import_memory(const CudaDevice& device,
                                                          const cuda::IpcHandle& handle,
                                                          int64_t bytes);
// Lets the device's streams read and write the host's memory, which lives at least as long as the
// result. Several ranks that are threads of this process may ask for the same memory. Unavailable
// (69), DC6149.
base::Result<std::shared_ptr<DeviceMemory>> register_host(const CudaDevice& device,
                                                          std::shared_ptr<DeviceMemory> memory);

}  // namespace dc::runtime::device
