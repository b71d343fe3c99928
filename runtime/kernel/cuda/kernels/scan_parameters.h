// The parameters of the kernels of scan.h, for those who launch them too.
#pragma once

#include "runtime/kernel/cuda/kernels/walk.h"

namespace dc::runtime::kernel::cuda {

struct CumulativeSum {
  const void* from;
  void* to;
  RowWalk<2> rows;  // from, to
};

// Of each result the largest or smallest element, the first of equals or the first NaN, and its
// number among those that are folded.
struct Extreme {
  const void* from;
  void* values;  // may be null
  int64_t* indices;
  Walk<3> kept;    // from, values, indices
  Walk<1> folded;  // from, in the order of dims
};

}  // namespace dc::runtime::kernel::cuda
