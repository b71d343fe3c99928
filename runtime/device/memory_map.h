// File descriptors and mappings that close themselves, and shared memory without a name: nothing is
// left behind on any disk or in /dev/shm, however the processes end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "src/base/status.h"

namespace dc::runtime::device {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();
  static base::Result<Mapping> anonymous(int64_t bytes);  // zero-filled, of this process
  // The same, refused where the system could not give every page of it.
  static base::Result<Mapping> committed(int64_t bytes);
  // Maps a descriptor from make_shared_memory.
  static base::Result<Mapping> shared(int fd, int64_t bytes);
  // Puts zero-filled memory of this process in the place of the large pages in a part.
  base::Status make_private(int64_t offset, int64_t bytes);
  std::byte* base() const { return base_; }
  int64_t bytes() const { return bytes_; }

 private:
  Mapping(std::byte* base, int64_t bytes) : base_(base), bytes_(bytes) {}
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
};

// Zero-filled memory that other processes map by descriptor; its size is sealed, so no peer can
// take it away.
base::Result<Descriptor> make_shared_memory(int64_t bytes);

}  // namespace dc::runtime::device
