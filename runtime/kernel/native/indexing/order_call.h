// Instructions of sort, topk and histc while their kernels are being prepared, as CPUs and GPUs
// read them.
#pragma once

#include "runtime/kernel/native/call.h"
#include "runtime/kernel/native/iteration.h"

namespace dc::runtime::kernel::native {

// The first `taken` elements of each row of `self` along a dim, and their numbers in the row.
struct OrderCall {
  BoundTensor self, values, indices;
  int64_t length = 0;  // of a row; 1 of a tensor without dims
  int64_t taken = 0;
  int64_t self_stride = 1, values_stride = 1, indices_stride = 1;  // along the dim
  Iteration rows;  // first elements of the rows of self, values, indices
  bool is_descending = false;
  bool is_stable = false;  // of sort: equal elements keep their order
  bool is_sorted = true;   // of topk: in order
};
// Refused where a row is longer than `longest`.
OrderCall read_sort(Call& call, int64_t longest);
OrderCall read_topk(Call& call, int64_t longest);

// Counts of elements of `self` in `bins` equal parts of [low, high]; equal ends stand for those of
// the elements.
struct HistogramCall {
  BoundTensor self, to;  // of floating-point numbers; `to` has one dim, a place for each part
  Iteration elements;    // of self
  int64_t bins = 0;
  double low = 0, high = 0;
};
HistogramCall read_histogram(Call& call);

// Whether places in [low, high] are finite numbers of parts.
bool has_parts(double low, double high, int64_t bins);

}  // namespace dc::runtime::kernel::native
