// The parameters of the kernels of reduce.h, for those who launch them too.
#pragma once

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/kernels/walk.h"

namespace dc::runtime::kernel::cuda {

// Of neighbouring results, in reduce_by_columns.
inline constexpr int64_t kResultsOfBlock = 32;

// Neighbouring elements of a row that a thread folds one after the other, in reduce_by_rows.
inline constexpr int64_t kElementsOfLane = 8;

// Threads that fold a row of so many elements there: two such groups for each, but a warp at least
// and a block at most.
inline constexpr int64_t row_lanes(int64_t elements) {
  int64_t lanes = 32;
  while (lanes < int64_t{kBlockThreads} && 2 * kElementsOfLane * lanes < elements) lanes *= 2;
  return lanes;
}

// `from` and `to` are of the element types that the kernel is for.
struct Reduce {
  const void* from;
  void* to;
  Walk<2> kept;    // from, to
  Walk<1> folded;  // from
  double divisor;  // of floating-point totals
};

// Totals of parts of the terms, [parts, results].
struct ReduceParts {
  Reduce of;
  int64_t parts, terms_of_part;
  void* totals;
};

struct Variance {
  Reduce of;  // divided by the number of elements less the correction
  bool takes_root;
};

// The power-th root of the sum of |x|^power, and what that is for some powers.
enum class NormKind { Power, Count, Magnitudes, Squares, Largest, Smallest };
struct VectorNorm {
  Reduce of;
  NormKind kind;
  double power;
};

}  // namespace dc::runtime::kernel::cuda
