// DeviceMemory: bytes that a device allocated, given back when it is destroyed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/status.h"

namespace dc::runtime::device {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  std::byte* base() const { return base_; }
  int64_t bytes() const { return bytes_; }

  // Where it is shared with other processes, makes the large pages in this part memory of this
  // process alone, zero-filled as before; the others keep theirs. For memory that nothing was
  // written to. OutOfMemory (80).
  virtual base::Status make_private([[maybe_unused]] int64_t offset,
                                    [[maybe_unused]] int64_t bytes) {
    return base::ok_status();
  }

 protected:
  DeviceMemory(std::byte* base, int64_t bytes) : base_(base), bytes_(bytes) {}

 private:
  std::byte* base_;
  int64_t bytes_;
};

}  // namespace dc::runtime::device
