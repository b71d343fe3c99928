// Elements between the host and tensors on a device, in row-major order, whatever their strides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/kernel/kernel.h"

namespace dc::runtime::kernel {

// Copies elements [first, first + count) of the tensor. At `from` or `out` they are contiguous and
// in the tensor's dtype. Call it only while no stream uses these elements. Unavailable (69), as
// Device::upload and download.
base::Status upload_elements(device::Device& device, const BoundTensor& tensor, int64_t first,
                             int64_t count, const std::byte* from);
base::Status download_elements(device::Device& device, const BoundTensor& tensor, int64_t first,
                               int64_t count, std::byte* out);

// The host's own copy of a tensor, with its shape and strides. Sizes and strides must outlive it.
class HostCopy {
 public:
  HostCopy(device::Device& device, const BoundTensor& tensor);  // zeros; nothing moves yet
  // The same in memory that the device's streams reach. OutOfMemory (80).
  static base::Result<HostCopy> for_streams(device::Device& device, const BoundTensor& tensor);
  HostCopy(HostCopy&&) = default;
  HostCopy& operator=(HostCopy&&) = default;

  const BoundTensor& tensor() const { return host_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(host_.data);
  }
  // Unavailable (69), as Device::upload and download.
  base::Status upload() const;
  base::Status download();
  // A range of its bytes by streams, if it is for them: the host leaves these bytes alone until the
  // stream has come there.
  void upload(device::Stream& stream, int64_t first, int64_t bytes) const;
  void download(device::Stream& stream, int64_t first, int64_t bytes) const;
  int64_t bytes() const { return bytes_; }

 private:
  HostCopy(device::Device& device, const BoundTensor& tensor,
           std::unique_ptr<device::DeviceMemory> memory);
  std::byte* here() const { return as<std::byte>(); }

  device::Device* device_;
  std::byte* there_;
  int64_t bytes_;
  std::vector<std::byte> own_;                       // or
  std::unique_ptr<device::DeviceMemory> reachable_;  // where streams reach it
  BoundTensor host_;
};

}  // namespace dc::runtime::kernel
