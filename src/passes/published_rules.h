// The rules of DeepCompile (arXiv 2504.09983; DeepSpeed, deepspeed/compile/passes) with their
// published constants, apart from any graph: the baseline that our own passes are compared with.
// All sizes in bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/base/units.h"

namespace dc::passes::published {

// Nine tenths of the device memory may be used.
int64_t usable(int64_t device_memory);
int64_t headroom(int64_t usable, int64_t peak);  // never negative

// prefetch.py: gathers that wait to be issued take at most this; a group of fused gathers is
// smaller than that.
inline constexpr int64_t kPendingBytes = 4'000'000'000, kGroupBytes = 1'000'000'000;
// Two gathers fuse while 1.2 times the longer of them takes longer than both at once.
bool fuse(base::Nanos group, base::Nanos next, base::Nanos fused, int64_t fused_bytes);

struct Parameter {
  base::Nanos time;  // of all its gathers
  int64_t bytes = 0;
};
// selective_gather.py: indices, in order of time per byte (equal ones in the order given), up to
// the first that does not fit.
std::vector<size_t> keep_resident(std::span<const Parameter> parameters, int64_t headroom);

}  // namespace dc::passes::published
