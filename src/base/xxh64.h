// XXH64 (Collet, xxHash specification 0.1.1), a fast checksum: several bytes per cycle, no
// security.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dc::base {

uint64_t xxh64(std::span<const std::byte> bytes);  // seed 0

// The same of bytes that come one part after another.
class Xxh64 {
 public:
  void update(std::span<const std::byte> bytes);
  uint64_t value() const;  // of all bytes so far

 private:
  static constexpr size_t kStripe = 32;
  uint64_t lanes_[4] = {0x60EA27EEADC0B5D6, 0xC2B2AE3D27D4EB4F, 0, 0x61C8864E7A143579};
  std::byte rest_[kStripe];
  size_t rest_bytes_ = 0;
  uint64_t total_ = 0;
};

}  // namespace dc::base
