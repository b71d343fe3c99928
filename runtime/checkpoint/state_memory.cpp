#include "runtime/checkpoint/state_memory.h"

#include "runtime/kernel/elements.h"
#include "runtime/memory/outside_memory.h"

namespace dc::runtime {

using base::Status;

bool StateMemory::is_on_disk(int32_t tensor) const {
  return space_of(*plan_, tensor) == plan::Space::Disk;
}

Status StateMemory::read(int32_t tensor, int64_t first, int64_t count, std::byte* out) const {
  const int64_t bytes = base::byte_size(plan_->tensors[static_cast<size_t>(tensor)].dtype);
  if (is_on_disk(tensor)) {
    return disk_->read_part(tensor, first * bytes, {out, static_cast<size_t>(count * bytes)});
  }
  const BoundTensor source = bind_(tensor);
  const ElementWalk walk(source.sizes, source.strides);
  const auto* data = static_cast<const std::byte*>(source.data);
  if (walk.contiguous()) {
    device_->download({out, static_cast<size_t>(count * bytes)}, data + first * bytes);
    return base::ok_status();
  }
  for (int64_t i = 0; i < count; ++i) {
    device_->download({out + i * bytes, static_cast<size_t>(bytes)},
                      data + walk.offset(first + i) * bytes);
  }
  return base::ok_status();
}

Status StateMemory::write(int32_t tensor, int64_t first, int64_t count,
                          const std::byte* from) const {
  const int64_t bytes = base::byte_size(plan_->tensors[static_cast<size_t>(tensor)].dtype);
  if (is_on_disk(tensor)) {
    return disk_->write_part(tensor, first * bytes, {from, static_cast<size_t>(count * bytes)});
  }
  const BoundTensor target = bind_(tensor);
  const ElementWalk walk(target.sizes, target.strides);
  auto* data = static_cast<std::byte*>(target.data);
  if (walk.contiguous()) {
    device_->upload(data + first * bytes, {from, static_cast<size_t>(count * bytes)});
    return base::ok_status();
  }
  for (int64_t i = 0; i < count; ++i) {
    device_->upload(data + walk.offset(first + i) * bytes,
                    {from + i * bytes, static_cast<size_t>(bytes)});
  }
  return base::ok_status();
}

}  // namespace dc::runtime
