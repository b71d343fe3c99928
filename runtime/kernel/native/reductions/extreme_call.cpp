#include "runtime/kernel/native/reductions/extreme_call.h"

#include <algorithm>
#include <array>

#include "src/base/shape.h"

namespace dc::runtime::kernel::native {

ExtremeCall read_extreme(Call& call, bool has_values) {
  ExtremeCall of;
  of.self = call.tensor("self");
  of.indices = call.output(has_values ? 1 : 0);
  if (has_values) of.values = call.output(0);
  const bool all = !call.has_value("dim");
  const size_t dim = call.dim("dim", of.self), dims = of.self.sizes.size();
  call.require(
      of.indices.dtype == base::DType::I64 && (!of.values || of.values->dtype == of.self.dtype),
      "a result has another element type");
  if (of.values) call.same_sizes(*of.values, of.indices);
  const bool keeps = of.indices.sizes.size() == dims;
  std::vector<int64_t> result, kept, kept_self, kept_values, kept_indices;
  for (size_t d = 0; d < dims && call.ok(); ++d) {
    const bool is_folded = all || d == dim;
    const size_t place = result.size();  // of the dim in the results
    if (is_folded) {
      of.folded_sizes.push_back(of.self.sizes[d]);
      of.folded_strides.push_back(of.self.strides[d]);
      if (keeps) result.push_back(1);
      continue;
    }
    result.push_back(of.self.sizes[d]);
    call.require(place < of.indices.sizes.size(), "the result has another shape");
    if (!call.ok()) return of;
    kept.push_back(of.self.sizes[d]);
    kept_self.push_back(of.self.strides[d]);
    kept_values.push_back(of.values ? of.values->strides[place] : 0);
    kept_indices.push_back(of.indices.strides[place]);
  }
  call.require(std::ranges::equal(result, of.indices.sizes), "the result has another shape");
  call.require(base::numel(of.folded_sizes) > 0, "it has no elements to choose from");
  of.kept = Iteration(kept, std::array{kept_self, kept_values, kept_indices});
  call.require(of.kept.fits(), "its tensors have too many dims");
  return of;
}

}  // namespace dc::runtime::kernel::native
