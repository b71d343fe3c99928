// DeviceMemory: bytes that a device allocated, given back when it is destroyed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dc::runtime::device {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  std::byte* base() const { return base_; }
  int64_t bytes() const { return bytes_; }

 protected:
  DeviceMemory(std::byte* base, int64_t bytes) : base_(base), bytes_(bytes) {}

 private:
  std::byte* base_;
  int64_t bytes_;
};

}  // namespace dc::runtime::device
