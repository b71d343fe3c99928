#include "runtime/kernel/native/indexing/order_call.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

namespace dc::runtime::kernel::native {
namespace {

std::vector<int64_t> strides_of(const BoundTensor& tensor) {
  return {tensor.strides.begin(), tensor.strides.end()};
}

// `taken`: elements of each row that are wanted; all if not given.
OrderCall read_order(Call& call, std::optional<int64_t> taken, int64_t longest) {
  OrderCall order;
  order.self = call.tensor("self");
  order.values = call.output(0);
  order.indices = call.output(1);
  const size_t dim = call.dim("dim", order.self, -1);
  call.require(order.indices.dtype == base::DType::I64 && order.values.dtype == order.self.dtype,
               "a result has another element type");
  call.same_sizes(order.values, order.indices);
  call.same_sizes(order.self, order.values, dim);
  if (!call.ok()) return order;
  std::vector<int64_t> rows(order.values.sizes.begin(), order.values.sizes.end());
  const bool is_scalar = rows.empty();
  order.length = is_scalar ? 1 : order.self.sizes[dim];
  order.taken = is_scalar ? 1 : rows[dim];
  call.require(order.taken == taken.value_or(order.length),
               "the result has another number of elements");
  call.require(order.taken <= order.length && order.length <= longest,
               "a row is too short or too long");
  if (!is_scalar) {
    order.self_stride = order.self.strides[dim];
    order.values_stride = order.values.strides[dim];
    order.indices_stride = order.indices.strides[dim];
    rows[dim] = std::min<int64_t>(rows[dim], 1);
  }
  order.rows = Iteration(rows, std::array{strides_of(order.self), strides_of(order.values),
                                          strides_of(order.indices)});
  call.require(order.rows.fits(), "its tensors have too many dims");
  return order;
}

}  // namespace

OrderCall read_sort(Call& call, int64_t longest) {
  OrderCall order = read_order(call, {}, longest);
  order.is_descending = call.integer("descending", 0) != 0;
  order.is_stable = call.integer("stable", 0) != 0;
  return order;
}

OrderCall read_topk(Call& call, int64_t longest) {
  OrderCall order = read_order(call, call.integer("k"), longest);
  order.is_descending = call.integer("largest", 1) != 0;
  order.is_sorted = call.integer("sorted", 1) != 0;
  return order;
}

HistogramCall read_histogram(Call& call) {
  HistogramCall histogram;
  histogram.self = call.tensor("self");
  histogram.to = call.output(0);
  histogram.low = call.number("min", 0);
  histogram.high = call.number("max", 0);
  call.require(histogram.to.sizes.size() == 1, "the result must have one dim");
  if (!call.ok()) return histogram;
  histogram.bins = histogram.to.sizes[0];
  call.require(histogram.bins > 0 && histogram.bins == call.integer("bins", 100),
               "it needs bins, as many as the result has elements");
  call.require(has_parts(histogram.low, histogram.high, histogram.bins),
               "'min' and 'max' have no range between them");
  histogram.elements = Iteration(histogram.self.sizes, std::array{strides_of(histogram.self)});
  call.require(histogram.elements.fits(), "its operand has too many dims");
  return histogram;
}

bool has_parts(double low, double high, int64_t bins) {
  return low <= high && std::isfinite((high - low) * static_cast<double>(bins));
}

}  // namespace dc::runtime::kernel::native
