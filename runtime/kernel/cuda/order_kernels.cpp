// sort, topk and histc.
#include <algorithm>
#include <bit>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/element_type.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/order_parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/cuda/walks.h"
#include "runtime/kernel/native/indexing/order_call.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using native::Call;
using native::Made;

// Of the rows that are put in order at once.
constexpr int64_t kMostRoom = int64_t{64} << 20;
constexpr int64_t kLongestRow = INT32_MAX / 2;

Order parameters_of(Call& call, const native::OrderCall& of) {
  Order order{};
  order.from = of.self.data;
  order.values = of.values.data;
  order.indices = static_cast<int64_t*>(of.indices.data);
  order.rows = {
      walk_of<3>(call, of.rows), of.length, {of.self_stride, of.values_stride, of.indices_stride}};
  order.taken = of.taken;
  order.sorted = of.is_sorted;
  return order;
}

Made order_kernel(Workshop& workshop, Call& call, const native::OrderCall& of,
                  const std::string& function, int32_t stream) {
  Order order = parameters_of(call, of);
  if (!call.ok()) return call.made(nullptr);
  const bool by_blocks = function == "stable_sort_rows";
  const DType dtype = of.self.dtype;
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
  const std::string way = of.is_descending ? "true" : "false";
  const std::string name = "dc_" + function + (of.is_descending ? "_descending_" : "_ascending_") +
                           std::string(base::name(dtype));
  const int64_t blocks =
      by_blocks ? order.room.count : (order.room.count + kBlockThreads - 1) / kBlockThreads;
  return workshop.kernel(
      source_of(name, "order.h", "Order", function + "<" + element_type(dtype) + ", " + way + ">"),
      static_cast<unsigned>(blocks), order);
}

Made sort_kernel(Workshop& workshop, Call& call, int32_t stream) {
  const native::OrderCall of = native::read_sort(call, kLongestRow);
  return order_kernel(workshop, call, of, of.is_stable ? "stable_sort_rows" : "sort_rows", stream);
}

Made topk_kernel(Workshop& workshop, Call& call, int32_t stream) {
  return order_kernel(workshop, call, native::read_topk(call, kLongestRow), "topk_rows", stream);
}

Made histogram_kernel(Workshop& workshop, Call& call, int32_t stream) {
  const native::HistogramCall of = native::read_histogram(call);
  const BoundTensor &self = of.self, &to = of.to;
  call.require(base::is_floating(self.dtype) && base::is_floating(to.dtype),
               "it is of floating-point numbers");
  if (!call.ok()) return call.made(nullptr);
  Histogram parameters{self.data, to.data,       walk_of<1>(call, of.elements),
                       of.bins,   to.strides[0], of.low,
                       of.high,   nullptr};
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
