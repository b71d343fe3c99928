// HostSpace: the arena of memory space `host`, private to this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "src/base/status.h"

namespace dc::runtime {

class HostSpace {
 public:
  // Zero-filled, aligned to a page. OutOfMemory (80) if there is none.
  static base::Result<HostSpace> create(int64_t bytes);
  HostSpace() = default;
  ~HostSpace();
  HostSpace(HostSpace&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  HostSpace& operator=(HostSpace&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  std::byte* base() const { return base_; }  // null if empty
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace dc::runtime
