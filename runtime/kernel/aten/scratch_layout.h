// Where an op's temporary allocations go inside its scratch slice.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace dc::runtime::kernel::aten {

// One allocation of an op, seen while it ran once. The clock ticks at every allocation and every
// release.
struct Allocation {
  int64_t bytes = 0;
  int32_t begin = 0;
  int32_t end = std::numeric_limits<int32_t>::max();  // never released before the op ended
};

inline bool overlap_in_time(const Allocation& a, const Allocation& b) {
  return a.begin < b.end && b.begin < a.end;
}

struct ScratchLayout {
  std::vector<int64_t> offsets;  // one per allocation; -1 where it is not scratch
  int64_t bytes = 0;             // extent: what the slice must hold
};

// First fit with sizes rounded to 64 bytes, largest first or in order of birth, whichever needs
// less.
ScratchLayout lay_out_scratch(const std::vector<Allocation>& allocations,
                              const std::vector<bool>& is_scratch);

}  // namespace dc::runtime::kernel::aten
