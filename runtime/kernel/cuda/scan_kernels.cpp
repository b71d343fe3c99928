// cumsum, and which element is the largest or smallest: along one dim, or of all.
#include <algorithm>
#include <array>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/element_type.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/scan_parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/cuda/walks.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using native::Call;
using native::Made;

Made cumulative_sum_kernel(Workshop& workshop, Call& call, int32_t) {
  const BoundTensor self = call.tensor("self"), to = call.output(0);
  const size_t dim = call.dim("dim", self);
  call.same_sizes(self, to);
  if (!call.ok()) return call.made(nullptr);
  const native::Rows rows(call, self, dim, std::min(dim + 1, self.sizes.size()), {&self, &to});
  const CumulativeSum parameters{self.data, to.data, row_walk_of<2>(call, rows)};
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(source_for({self.dtype, to.dtype}, "dc_cumulative_sums", "scan.h",
                                    "CumulativeSum", "cumulative_sums"),
                         workshop.blocks_for(rows.count() * kBlockThreads), parameters);
}

// `values`: null if only the places are wanted. A result has size 1 in the folded dims, or is
// without them.
Extreme read_extreme(Call& call, const BoundTensor& self, const BoundTensor* values,
                     const BoundTensor& indices) {
  Extreme parameters{};
  const bool all = !call.has_value("dim");
  const size_t dim = call.dim("dim", self), dims = self.sizes.size();
  const bool keeps = indices.sizes.size() == dims;
  std::vector<int64_t> kept, kept_from, kept_values, kept_indices, folded, folded_from, shape;
  for (size_t d = 0; d < dims; ++d) {
    const bool is_folded = all || d == dim;
    if (is_folded) {
      folded.push_back(self.sizes[d]);
      folded_from.push_back(self.strides[d]);
      if (keeps) shape.push_back(1);
    } else {
      kept.push_back(self.sizes[d]);
      kept_from.push_back(self.strides[d]);
      shape.push_back(self.sizes[d]);
    }
  }
  call.require(std::ranges::equal(shape, indices.sizes), "the result has another shape");
  if (values != nullptr) call.same_sizes(*values, indices);
  if (!call.ok()) return parameters;
  for (size_t d = 0, next = 0; d < dims; ++d) {
    const bool is_folded = all || d == dim;
    if (!is_folded) {
      kept_indices.push_back(indices.strides[next]);
      kept_values.push_back(values == nullptr ? 0 : values->strides[next]);
    }
    if (!is_folded || keeps) ++next;
  }
  parameters.kept =
      walk_of<3>(call, native::Iteration(kept, std::array{kept_from, kept_values, kept_indices}));
  parameters.folded = walk_of<1>(
      call, native::Iteration(folded, std::array{folded_from}, native::DimOrder::AsTheyAre));
  parameters.from = self.data;
  parameters.values = values == nullptr ? nullptr : values->data;
  parameters.indices = static_cast<int64_t*>(indices.data);
  return parameters;
}

Made extreme_kernel(Workshop& workshop, Call& call, bool takes_largest, bool has_values) {
  const BoundTensor self = call.tensor("self"), indices = call.output(has_values ? 1 : 0);
  const BoundTensor values = has_values ? call.output(0) : BoundTensor();
  call.require(self.numel() > 0, "it has no elements");
  call.require(indices.dtype == DType::I64 && (!has_values || values.dtype == self.dtype),
               "a result has another element type");
  if (!call.ok()) return call.made(nullptr);
  const Extreme parameters = read_extreme(call, self, has_values ? &values : nullptr, indices);
  if (!call.ok()) return call.made(nullptr);
  const std::string name = std::string("dc_extremes_") +
                           (takes_largest ? "largest_" : "smallest_") +
                           std::string(base::name(self.dtype));
  return workshop.kernel(source_of(name, "scan.h", "Extreme",
                                   std::string("extremes<") + element_type(self.dtype) +
                                       (takes_largest ? ", true>" : ", false>")),
                         workshop.blocks_for(parameters.kept.count * kBlockThreads), parameters);
}
template <bool kLargest, bool kHasValues>
Made extreme_kernel(Workshop& workshop, Call& call, int32_t) {
  return extreme_kernel(workshop, call, kLargest, kHasValues);
}

constexpr ModelKernelRow kScanRows[] = {
    {"aten.argmax.default", extreme_kernel<true, false>},
    {"aten.argmin.default", extreme_kernel<false, false>},
    {"aten.cumsum.default", cumulative_sum_kernel},
    {"aten.max.dim", extreme_kernel<true, true>},
    {"aten.min.dim", extreme_kernel<false, true>},
};

}  // namespace

std::span<const ModelKernelRow> scan_kernels() { return kScanRows; }

}  // namespace dc::runtime::kernel::cuda
