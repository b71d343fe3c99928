// Elements between the host and tensors on a device, in row-major order, whatever their strides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/kernel/kernel.h"

namespace dc::runtime::kernel {

// Copies elements [first, first + count) of the tensor. At `from` or `out` they are contiguous and
// in the tensor's dtype. Call it only while no stream uses these elements.
void upload_elements(device::Device& device, const BoundTensor& tensor, int64_t first,
                     int64_t count, const std::byte* from);
void download_elements(device::Device& device, const BoundTensor& tensor, int64_t first,
                       int64_t count, std::byte* out);

// The host's own copy of a tensor, with its shape and strides. Sizes and strides must outlive it.
class HostCopy {
 public:
  HostCopy(device::Device& device, const BoundTensor& tensor);  // zeros; nothing moves yet
  HostCopy(HostCopy&&) = default;
  HostCopy& operator=(HostCopy&&) = default;

  const BoundTensor& tensor() const { return host_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(host_.data);
  }
  void upload() const { upload(0, bytes()); }
  void download() { download(0, bytes()); }
  // A range of its bytes.
  void upload(int64_t first, int64_t bytes) const;
  void download(int64_t first, int64_t bytes);
  int64_t bytes() const { return static_cast<int64_t>(bytes_.size()); }

 private:
  device::Device* device_;
  std::byte* there_;
  std::vector<std::byte> bytes_;
  BoundTensor host_;
};

}  // namespace dc::runtime::kernel
