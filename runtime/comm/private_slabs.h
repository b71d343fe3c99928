// Slabs that no other rank maps: those of communicators that send the bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/comm/buffers.h"
#include "runtime/device/device.h"

namespace dc::runtime::comm {

class PrivateSlabs {
 public:
  // Collective over `control`, see check_equal_slabs(). The slab lives as long as this object.
  base::Result<Slab> allocate(Communicator& control, device::Device& device, int64_t bytes) {
    DC_RETURN_IF_ERROR(check_equal_slabs(control, bytes));
    DC_ASSIGN_OR_RETURN(auto slab, device.allocate(std::max<int64_t>(bytes, 1)));
    std::byte* base = slab->base();
    slabs_.push_back(std::move(slab));
    return Slab{base, bytes};
  }

  // Never gives the memory back: something may still write into it until the process ends.
  void abandon() {
    for (auto& slab : slabs_) (void)slab.release();
  }

 private:
  std::vector<std::unique_ptr<device::DeviceMemory>> slabs_;
};

}  // namespace dc::runtime::comm
