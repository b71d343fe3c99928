// MemoryGauge: how much of a GPU's memory a process takes beyond its plans' arenas: for its
// context, libraries, and the code of kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "runtime/device/cuda/memory_use.h"

namespace dc::runtime::measure {

class MemoryGauge {
 public:
  // Before the process uses the GPU of its place on its host. Nothing where the memory in use is
  // not known. What other processes take or give back from then on counts too.
  static std::optional<MemoryGauge> before_use(int local_rank) {
    const std::optional<int64_t> used = device::gpu_memory_in_use(local_rank);
    if (!used) return std::nullopt;
    return MemoryGauge(local_rank, *used);
  }
  // While a plan that has so many bytes of the GPU is under way, and no other.
  void note(int64_t arena_bytes) {
    const std::optional<int64_t> used = device::gpu_memory_in_use(local_rank_);
    if (used) most_ = std::max(most_, *used - before_ - arena_bytes);
  }
  int64_t beyond_arenas() const { return most_; }  // the most that was noted; 0: nothing was

 private:
  MemoryGauge(int local_rank, int64_t before) : local_rank_(local_rank), before_(before) {}
  int local_rank_;
  int64_t before_, most_ = 0;
};

}  // namespace dc::runtime::measure
