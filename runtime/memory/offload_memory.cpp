#include "runtime/memory/offload_memory.h"

#include "src/base/text.h"

namespace dc::runtime::memory {

using base::ErrorKind;
using base::Result;
using base::Status;
using plan::Space;

Result<OffloadMemory> OffloadMemory::create(const plan::Plan& plan, int rank,
                                            const std::string& folder, device::Device& device) {
  OffloadMemory memory;
  const int64_t on_disk = arena_bytes(plan, Space::Disk);
  if (on_disk > 0) {
    if (folder.empty()) {
      return Status(ErrorKind::Usage, "DC6707",
                    "the plan offloads " + base::format_bytes(on_disk) +
                        " per rank to disk; give --offload-dir DIR");
    }
    DC_ASSIGN_OR_RETURN(memory.disk, DiskSpace::create(plan, rank, folder));
  }
  for (const Space space : base::kSpaces) {
    if (!is_mapped(space)) continue;
    DC_ASSIGN_OR_RETURN(memory.mapped[space], HostSpace::create(device, arena_bytes(plan, space)));
  }
  return memory;
}

int64_t arena_bytes(const plan::Plan& plan, Space space) {
  const auto index = static_cast<size_t>(space);
  return index < plan.arena_bytes.size() ? plan.arena_bytes[index] : 0;
}

Space space_of(const plan::Plan& plan, int32_t tensor) {
  const int32_t slice = plan.tensors[static_cast<size_t>(tensor)].slice;
  return plan.slices[static_cast<size_t>(slice)].space;
}

}  // namespace dc::runtime::memory
