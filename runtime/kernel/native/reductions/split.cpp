#include "runtime/kernel/native/reductions/split.h"

#include <algorithm>
#include <array>
#include <limits>

#include "src/base/shape.h"

namespace dc::runtime::kernel::native {
namespace {

int64_t smallest_stride(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  int64_t smallest = std::numeric_limits<int64_t>::max();
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] > 1) smallest = std::min(smallest, strides[dim]);
  }
  return smallest;
}

}  // namespace

DimSplit::DimSplit(Call& call, const BoundTensor& self, const BoundTensor& to,
                   std::vector<int64_t> dims) {
  const auto rank = static_cast<int64_t>(self.sizes.size());
  for (int64_t& dim : dims) {
    dim += dim < 0 ? rank : 0;
    call.require((dim >= 0 && dim < rank) || rank == 0, "'dim' is not one of its dims");
  }
  const bool keeps_dims = to.sizes.size() == self.sizes.size();
  size_t next = 0;
  for (size_t dim = 0; dim < self.sizes.size() && call.ok(); ++dim) {
    const bool reduced = dims.empty() || std::find(dims.begin(), dims.end(),
                                                   static_cast<int64_t>(dim)) != dims.end();
    if (reduced) {
      reduced_sizes_.push_back(self.sizes[dim]);
      reduced_self_.push_back(self.strides[dim]);
      call.require(!keeps_dims || to.sizes[dim] == 1, "the result has another shape");
      next += keeps_dims ? 1 : 0;
      continue;
    }
    call.require(next < to.sizes.size() && to.sizes[next] == self.sizes[dim],
                 "the result has another shape");
    if (!call.ok()) return;
    kept_sizes_.push_back(self.sizes[dim]);
    kept_self_.push_back(self.strides[dim]);
    kept_to_.push_back(to.strides[next++]);
  }
  call.require(next == to.sizes.size(), "the result has another shape");
  call.require(kept().fits() && reduced().fits(), "its operand has too many dims");
}

Iteration DimSplit::kept() const {
  return Iteration(kept_sizes_, std::array{kept_self_, kept_to_});
}
Iteration DimSplit::reduced() const { return Iteration(reduced_sizes_, std::array{reduced_self_}); }
int64_t DimSplit::reduced_count() const { return base::numel(reduced_sizes_); }
bool DimSplit::reduces_neighbours() const {
  return smallest_stride(reduced_sizes_, reduced_self_) <= smallest_stride(kept_sizes_, kept_self_);
}

}  // namespace dc::runtime::kernel::native
