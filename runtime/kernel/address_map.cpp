#include "runtime/kernel/kernel.h"
#include "runtime/plan/mesh.h"

namespace dc::runtime::kernel {

int64_t BoundTensor::numel() const {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return count;
}

std::byte* AddressMap::slice(int32_t slice) const {
  DC_CHECK(slice >= 0 && static_cast<size_t>(slice) < plan_.slices.size());
  const plan::Slice& entry = plan_.slices[slice];
  DC_CHECK(entry.space != plan::Space::Disk);
  return (entry.space == plan::Space::Host ? host_base_ : device_base_) + entry.offset;
}

BoundTensor AddressMap::bind(int32_t tensor) const {
  DC_CHECK(tensor >= 0 && static_cast<size_t>(tensor) < plan_.tensors.size());
  const plan::Tensor& entry = plan_.tensors[tensor];
  std::byte* start = slice(entry.slice) + entry.offset + plan::rank_offset(plan_, entry, rank_);
  return BoundTensor{start, entry.dtype, entry.sizes, entry.strides};
}

}  // namespace dc::runtime::kernel
