#include "runtime/kernel/aten/extra_scratch.h"

#include <sys/mman.h>

#include "runtime/kernel/aten/serving_allocator.h"

namespace dc::runtime::kernel::aten {

ExtraScratch::~ExtraScratch() {
  for (const auto& [stream, block] : blocks_) {
    remove_planned_range(block.data);
    munmap(block.data, static_cast<size_t>(block.bytes));
  }
}

bool ExtraScratch::take(int32_t stream, int64_t bytes) {
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return false;
  if (!add_planned_range(data, bytes)) {
    munmap(data, static_cast<size_t>(bytes));
    return false;
  }
  blocks_[stream] = {static_cast<std::byte*>(data), bytes};
  return true;
}

std::byte* ExtraScratch::find(int32_t stream, int64_t bytes) const {
  const auto found = blocks_.find(stream);
  return found == blocks_.end() || found->second.bytes < bytes ? nullptr : found->second.data;
}

}  // namespace dc::runtime::kernel::aten
