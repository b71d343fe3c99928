// cumsum, and which element is the largest or smallest: along one dim, or of all.
#include <algorithm>
#include <array>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/element_type.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/scan_parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/cuda/walks.h"
#include "runtime/kernel/native/reductions/extreme_call.h"

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

template <bool kLargest, bool kHasValues>
Made extreme_kernel(Workshop& workshop, Call& call, int32_t) {
  const native::ExtremeCall of = native::read_extreme(call, kHasValues);
  if (!call.ok()) return call.made(nullptr);
  const native::Iteration folded(of.folded_sizes, std::array{of.folded_strides},
                                 native::DimOrder::AsTheyAre);
  const Extreme parameters{of.self.data, of.values ? of.values->data : nullptr,
                           static_cast<int64_t*>(of.indices.data), walk_of<3>(call, of.kept),
                           walk_of<1>(call, folded)};
  if (!call.ok()) return call.made(nullptr);
  const DType dtype = of.self.dtype;
  return workshop.kernel(
      source_of(
          std::string("dc_extremes_") + (kLargest ? "largest_" : "smallest_") +
              std::string(base::name(dtype)),
          "scan.h", "Extreme",
          std::string("extremes<") + element_type(dtype) + (kLargest ? ", true>" : ", false>")),
      workshop.blocks_for(parameters.kept.count * kBlockThreads), parameters);
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
