#include "runtime/kernel/native/iteration.h"

#include <algorithm>

#include "src/base/shape.h"

namespace dc::runtime::kernel::native {

std::optional<std::vector<int64_t>> broadcast_strides(const BoundTensor& tensor,
                                                      std::span<const int64_t> sizes) {
  if (tensor.sizes.size() > sizes.size()) return std::nullopt;
  const size_t added = sizes.size() - tensor.sizes.size();
  std::vector<int64_t> strides(sizes.size(), 0);
  for (size_t dim = added; dim < sizes.size(); ++dim) {
    const int64_t size = tensor.sizes[dim - added];
    if (size != sizes[dim] && size != 1) return std::nullopt;
    if (size != 1) strides[dim] = tensor.strides[dim - added];
  }
  return strides;
}

Iteration::Iteration(std::span<const int64_t> sizes, std::span<const std::vector<int64_t>> strides,
                     DimOrder order)
    : count_(base::numel(sizes)), tensors_(strides.size()) {
  std::vector<Dim> dims;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] == 1) continue;
    Dim loop{sizes[dim], {}};
    for (size_t t = 0; t < tensors_; ++t) loop.strides[t] = strides[t][dim];
    dims.push_back(loop);
  }
  if (order == DimOrder::ByStrides)
    std::stable_sort(dims.begin(), dims.end(),
                     [](const Dim& a, const Dim& b) { return a.strides[0] > b.strides[0]; });
  for (const Dim& dim : dims) {
    const bool joins = !dims_.empty() && [&] {
      for (size_t t = 0; t < tensors_; ++t) {
        if (dims_.back().strides[t] != dim.strides[t] * dim.size) return false;
      }
      return true;
    }();
    if (!joins) {
      dims_.push_back(dim);
      continue;
    }
    dims_.back().size *= dim.size;
    dims_.back().strides = dim.strides;
  }
  if (dims_.empty()) return;
  inner_ = dims_.back().size;
  inner_strides_ = dims_.back().strides;
  dims_.pop_back();
}

}  // namespace dc::runtime::kernel::native
