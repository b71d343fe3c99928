#include "runtime/kernel/host_transfer.h"

#include <algorithm>

#include "runtime/kernel/elements.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel {
namespace {

// Bytes from the first element to the end of the last one.
int64_t extent_bytes(const BoundTensor& tensor) {
  return base::extent(tensor.sizes, tensor.strides) * base::byte_size(tensor.dtype);
}

}  // namespace

base::Status upload_elements(device::Device& device, const BoundTensor& tensor, int64_t first,
                             int64_t count, const std::byte* from) {
  const ElementWalk walk(tensor.sizes, tensor.strides);
  const int64_t bytes = base::byte_size(tensor.dtype);
  auto* data = static_cast<std::byte*>(tensor.data);
  if (walk.contiguous()) {
    return device.upload(data + first * bytes, {from, static_cast<size_t>(count * bytes)});
  }
  for (int64_t i = 0; i < count; ++i) {
    DC_RETURN_IF_ERROR(device.upload(data + walk.offset(first + i) * bytes,
                                     {from + i * bytes, static_cast<size_t>(bytes)}));
  }
  return base::ok_status();
}

base::Status download_elements(device::Device& device, const BoundTensor& tensor, int64_t first,
                               int64_t count, std::byte* out) {
  const ElementWalk walk(tensor.sizes, tensor.strides);
  const int64_t bytes = base::byte_size(tensor.dtype);
  const auto* data = static_cast<const std::byte*>(tensor.data);
  if (walk.contiguous()) {
    return device.download({out, static_cast<size_t>(count * bytes)}, data + first * bytes);
  }
  for (int64_t i = 0; i < count; ++i) {
    DC_RETURN_IF_ERROR(device.download({out + i * bytes, static_cast<size_t>(bytes)},
                                       data + walk.offset(first + i) * bytes));
  }
  return base::ok_status();
}

HostCopy::HostCopy(device::Device& device, const BoundTensor& tensor)
    : device_(&device),
      there_(static_cast<std::byte*>(tensor.data)),
      bytes_(extent_bytes(tensor)),
      own_(static_cast<size_t>(bytes_)),
      host_(tensor) {
  host_.data = own_.data();
}

HostCopy::HostCopy(device::Device& device, const BoundTensor& tensor,
                   std::unique_ptr<device::DeviceMemory> memory)
    : device_(&device),
      there_(static_cast<std::byte*>(tensor.data)),
      bytes_(extent_bytes(tensor)),
      reachable_(std::move(memory)),
      host_(tensor) {
  host_.data = reachable_->base();
}

base::Result<HostCopy> HostCopy::for_streams(device::Device& device, const BoundTensor& tensor) {
  const int64_t bytes = extent_bytes(tensor);
  DC_ASSIGN_OR_RETURN(auto memory, device.allocate_host(std::max<int64_t>(bytes, 1)));
  std::fill_n(memory->base(), bytes, std::byte{});
  return HostCopy(device, tensor, std::move(memory));
}

base::Status HostCopy::upload() const {
  return device_->upload(there_, {here(), static_cast<size_t>(bytes_)});
}

base::Status HostCopy::download() {
  return device_->download({here(), static_cast<size_t>(bytes_)}, there_);
}

void HostCopy::upload(device::Stream& stream, int64_t first, int64_t bytes) const {
  stream.copy(there_ + first, here() + first, bytes);
}

void HostCopy::download(device::Stream& stream, int64_t first, int64_t bytes) const {
  stream.copy(here() + first, there_ + first, bytes);
}

}  // namespace dc::runtime::kernel
