// sort, topk and histc.
#include <algorithm>
#include <bit>
#include <optional>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/element_type.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/order_parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/cuda/walks.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using base::Result;
using native::Call;
using native::Made;

// Of the rows that are put in order at once.
constexpr int64_t kMostRoom = int64_t{64} << 20;

// `taken`: elements of each row that are wanted; all if not given.
Order read_order(Call& call, size_t dim, std::optional<int64_t> taken) {
  Order order{};
  const BoundTensor self = call.tensor("self"), values = call.output(0), indices = call.output(1);
  call.require(indices.dtype == DType::I64 && values.dtype == self.dtype,
               "a result has another element type");
  call.same_sizes(values, indices);
  call.same_sizes(self, values, dim);
  if (!call.ok()) return order;
  const bool is_scalar = self.sizes.empty();
  order.rows.length = is_scalar ? 1 : self.sizes[dim];
  order.taken = is_scalar ? 1 : values.sizes[dim];
  call.require(order.taken == taken.value_or(order.rows.length),
               "the result has another number of elements");
  call.require(order.taken <= order.rows.length && order.rows.length <= INT32_MAX / 2,
               "a row is too short or too long");
  if (!call.ok()) return order;
  std::vector<int64_t> sizes(values.sizes.begin(), values.sizes.end());
  std::vector<std::vector<int64_t>> strides;
  for (const BoundTensor& tensor : {self, values, indices}) {
    if (!is_scalar) order.rows.strides[strides.size()] = tensor.strides[dim];
    strides.emplace_back(tensor.strides.begin(), tensor.strides.end());
  }
  if (!is_scalar) sizes[dim] = std::min<int64_t>(sizes[dim], 1);
  order.rows.rows = walk_of<3>(call, native::Iteration(sizes, strides));
  order.from = self.data;
  order.values = values.data;
  order.indices = static_cast<int64_t*>(indices.data);
  return order;
}

Made order_kernel(Workshop& workshop, Call& call, Order order, const std::string& function,
                  bool descending, int32_t stream) {
  if (!call.ok()) return call.made(nullptr);
  const bool by_blocks = function == "stable_sort_rows";
  const DType dtype = call.tensor("self").dtype;
  const int64_t rows = order.taken == 0 ? 0 : order.rows.rows.count;
  if (rows == 0) return workshop.kernel({});
  order.room.length =
      by_blocks ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(order.rows.length)))
                : order.rows.length;
  // Elements of 16 bits are computed with in f32.
  const int64_t value_bytes = std::max<int64_t>(base::byte_size(dtype), sizeof(float));
  const int64_t bytes = order.room.length * (value_bytes + static_cast<int64_t>(sizeof(int32_t)));
  const int64_t most = by_blocks ? int64_t{workshop.blocks_for(rows * kBlockThreads)}
                                 : int64_t{workshop.blocks_for(rows)} * kBlockThreads;
  order.room.count = std::clamp<int64_t>(kMostRoom / bytes, 1, std::min(most, rows));
  DC_ASSIGN_OR_RETURN(std::byte* const room, workshop.scratch(stream, order.room.count * bytes));
  order.room.values = room;
  order.room.numbers =
      reinterpret_cast<int32_t*>(room + order.room.count * order.room.length * value_bytes);
  const std::string way = descending ? "true" : "false";
  const std::string name = "dc_" + function + (descending ? "_descending_" : "_ascending_") +
                           std::string(base::name(dtype));
  const int64_t blocks =
      by_blocks ? order.room.count : (order.room.count + kBlockThreads - 1) / kBlockThreads;
  return workshop.kernel(
      source_of(name, "order.h", "Order", function + "<" + element_type(dtype) + ", " + way + ">"),
      static_cast<unsigned>(blocks), order);
}

Made sort_kernel(Workshop& workshop, Call& call, int32_t stream) {
  const Order order = read_order(call, call.dim("dim", call.tensor("self"), -1), {});
  const bool is_stable = call.integer("stable", 0) != 0;
  return order_kernel(workshop, call, order, is_stable ? "stable_sort_rows" : "sort_rows",
                      call.integer("descending", 0) != 0, stream);
}

Made topk_kernel(Workshop& workshop, Call& call, int32_t stream) {
  Order order = read_order(call, call.dim("dim", call.tensor("self"), -1), call.integer("k"));
  order.sorted = call.integer("sorted", 1) != 0;
  return order_kernel(workshop, call, order, "topk_rows", call.integer("largest", 1) != 0, stream);
}

Made histogram_kernel(Workshop& workshop, Call& call, int32_t stream) {
  const BoundTensor self = call.tensor("self"), to = call.output(0);
  call.require(base::is_floating(self.dtype) && base::is_floating(to.dtype),
               "it is of floating-point numbers");
  call.require(to.sizes.size() == 1, "the result must have one dim");
  if (!call.ok()) return call.made(nullptr);
  Histogram parameters{};
  parameters.from = self.data;
  parameters.to = to.data;
  parameters.bins = to.sizes[0];
  parameters.to_stride = to.strides[0];
  parameters.low = call.number("min", 0);
  parameters.high = call.number("max", 0);
  call.require(parameters.bins > 0 && parameters.bins == call.integer("bins", 100),
               "it needs bins, as many as the result has elements");
  call.require(parameters.low <= parameters.high, "'min' and 'max' have no range between them");
  parameters.walk = walk_of<1>(
      call, native::Iteration(self.sizes, std::array{std::vector<int64_t>(self.strides.begin(),
                                                                          self.strides.end())}));
  if (!call.ok()) return call.made(nullptr);
  std::vector<Launch> launches;
  if (parameters.low == parameters.high && parameters.walk.count > 0) {
    DC_ASSIGN_OR_RETURN(std::byte* const ends,
                        workshop.scratch(stream, 2 * int64_t{sizeof(double)}));
    parameters.ends = reinterpret_cast<double*>(ends);
    DC_ASSIGN_OR_RETURN(Launch launch,
                        workshop.launch(source_for({self.dtype}, "dc_histogram_ends", "histogram.h",
                                                   "Histogram", "histogram_ends"),
                                        1, parameters));
    launches.push_back(std::move(launch));
  }
  DC_ASSIGN_OR_RETURN(
      Launch launch,
      workshop.launch(source_for({self.dtype, to.dtype}, "dc_histogram", "histogram.h", "Histogram",
                                 "histogram"),
                      workshop.blocks_for(parameters.bins * kBlockThreads), parameters));
  launches.push_back(std::move(launch));
  return workshop.kernel(std::move(launches));
}

constexpr ModelKernelRow kOrderRows[] = {
    {"aten.histc.default", histogram_kernel},
    {"aten.sort.default", sort_kernel},
    {"aten.sort.stable", sort_kernel},
    {"aten.topk.default", topk_kernel},
};

}  // namespace

std::span<const ModelKernelRow> order_kernels() { return kOrderRows; }

}  // namespace dc::runtime::kernel::cuda
