#include "runtime/checkpoint/state_memory.h"

#include "runtime/kernel/host_transfer.h"
#include "runtime/memory/offload_memory.h"

namespace dc::runtime::checkpoint {

using base::Status;

bool StateMemory::is_on_disk(int32_t tensor) const {
  return memory::space_of(*plan_, tensor) == plan::Space::Disk;
}

std::optional<kernel::BoundTensor> StateMemory::on_device(int32_t tensor) const {
  if (memory::space_of(*plan_, tensor) != plan::Space::Device) return std::nullopt;
  return bind_(tensor);
}

Status StateMemory::read(int32_t tensor, int64_t first, int64_t count, std::byte* out) const {
  const int64_t bytes = base::byte_size(plan_->tensors[static_cast<size_t>(tensor)].dtype);
  if (is_on_disk(tensor)) {
    return disk_->read_part(tensor, first * bytes, {out, static_cast<size_t>(count * bytes)});
  }
  return kernel::download_elements(*device_, bind_(tensor), first, count, out);
}

Status StateMemory::write(int32_t tensor, int64_t first, int64_t count,
                          const std::byte* from) const {
  const int64_t bytes = base::byte_size(plan_->tensors[static_cast<size_t>(tensor)].dtype);
  if (is_on_disk(tensor)) {
    return disk_->write_part(tensor, first * bytes, {from, static_cast<size_t>(count * bytes)});
  }
  return kernel::upload_elements(*device_, bind_(tensor), first, count, from);
}

}  // namespace dc::runtime::checkpoint
