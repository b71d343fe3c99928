// Sums on a device whose memory the host's cores do not reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/device/stream.h"
#include "src/base/dtype.h"
#include "src/base/status.h"

namespace dc::runtime::comm {

// What ranks contribute to the same elements, in memory of the device.
struct Contributions {
  const void* own = nullptr;
  const std::byte* others = nullptr;  // those of the other ranks, in rank order
  int64_t stride = 0;                 // bytes from one of these to the next
  int rank = 0, ranks = 0;
  base::DType dtype = base::DType::F32;  // f32, bf16 or f16
  int64_t count = 0;                     // elements
};

// The same where all of it is memory that the device reaches.
inline constexpr int kMostMappedRanks = 64;
struct MappedContributions {
  std::span<const void* const> inputs;  // by rank, at most kMostMappedRanks
  base::DType dtype = base::DType::F32;
  int64_t count = 0;
};

class DeviceSums {
 public:
  virtual ~DeviceSums() = default;
  // Issues to the stream what gives the bits of sum_in_rank_order() (sums.h). `sum` may be this
  // rank's own contribution where that is f32.
  virtual void sum(const Contributions& of, float* sum, device::Stream& stream) = 0;
  virtual void sum(const MappedContributions& of, float* sum, device::Stream& stream) = 0;
};

}  // namespace dc::runtime::comm
