// The parameters of the kernel in drawing.h, for those who launch it too.
#pragma once

#include "runtime/kernel/scalar/drawing.h"

namespace dc::runtime::kernel::cuda {

using scalar::int64_t, scalar::uint32_t, scalar::uint64_t;

// Elements [first, first + count) of what is drawn, to `out`, of an element type that the kernel is
// for.
struct Draw {
  scalar::Drawing what;
  int64_t first, count;
  void* out;
};

// The groups that have elements of the range, times the counters of a group.
inline int64_t counters_of(int64_t first, int64_t count) {
  const int64_t groups =
      (first + count + scalar::kDrawGroup - 1) / scalar::kDrawGroup - first / scalar::kDrawGroup;
  return groups * scalar::kDrawLanes;
}

}  // namespace dc::runtime::kernel::cuda
