#include "runtime/kernel/kernel.h"
#include "runtime/plan/mesh.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel {

int64_t BoundTensor::numel() const { return base::numel(sizes); }

std::byte* AddressMap::slice(int32_t slice) const {
  DC_CHECK(slice >= 0 && static_cast<size_t>(slice) < plan_.slices.size());
  const plan::Slice& entry = plan_.slices[slice];
  DC_CHECK(entry.space != plan::Space::Disk);
  return bases_[entry.space] + entry.offset;
}

BoundTensor AddressMap::bind(int32_t tensor) const {
  DC_CHECK(tensor >= 0 && static_cast<size_t>(tensor) < plan_.tensors.size());
  const plan::Tensor& entry = plan_.tensors[tensor];
  std::byte* start = slice(entry.slice) + entry.offset + plan::rank_offset(plan_, entry, rank_);
  return BoundTensor{start, entry.dtype, entry.sizes, entry.strides};
}

}  // namespace dc::runtime::kernel
