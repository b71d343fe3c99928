// The parameters of the kernels of order.h, selection.h and histogram.h, for those who launch them
// too.
#pragma once

#include "runtime/kernel/cuda/kernels/row_parameters.h"

namespace dc::runtime::kernel::cuda {

using scalar::int32_t;

// Room for the elements of a row while it is put in order: values of the type that they are
// computed with, then their numbers.
struct OrderRoom {
  void* values;
  int32_t* numbers;
  int64_t count;  // rows that there is room for
  int64_t length;
};

// The first `taken` elements of each row in an order, and their numbers in the row.
struct Order {
  const void* from;
  void* values;
  int64_t* indices;
  RowWalk<3> rows;  // from, values, indices; as long as `from` is
  OrderRoom room;
  int64_t taken;
  bool sorted;  // of topk: in order
};

// Counts of elements in equal parts of [low, high], a block for each part; others do not count.
struct Histogram {
  const void* from;
  void* to;
  Walk<1> walk;
  int64_t bins, to_stride;
  double low, high;  // if equal: the ends of the elements, of which
  double* ends;      // there are two
};

}  // namespace dc::runtime::kernel::cuda
