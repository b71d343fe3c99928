#include "runtime/kernel/native/norms/rows.h"

#include "src/base/shape.h"

namespace dc::runtime::kernel::native {
namespace {

// The one stride of the dims [first, end), or 0 if there is none.
int64_t joined_stride(const BoundTensor& tensor, size_t first, size_t end) {
  int64_t stride = 0, expected = 0;
  for (size_t dim = end; dim-- > first;) {
    if (tensor.sizes[dim] == 1) continue;
    if (stride == 0) stride = tensor.strides[dim];
    if (expected != 0 && tensor.strides[dim] != expected) return 0;
    expected = tensor.strides[dim] * tensor.sizes[dim];
  }
  return stride == 0 ? 1 : stride;
}

}  // namespace

Rows::Rows(Call& call, const BoundTensor& shape, size_t first, size_t end,
           std::initializer_list<const BoundTensor*> tensors)
    : tensors_(tensors.size()) {
  if (!call.ok()) return;
  length_ = base::numel(shape.sizes.subspan(first, end - first));
  std::vector<int64_t> outer(shape.sizes.begin(), shape.sizes.end());
  for (size_t dim = first; dim < end; ++dim) outer[dim] = 1;
  std::vector<std::vector<int64_t>> strides;
  for (const BoundTensor* tensor : tensors) {
    call.require(tensor->sizes.size() == shape.sizes.size(), "its tensors differ in dims");
    if (!call.ok()) return;
    bool per_row = true;
    for (size_t dim = 0; dim < shape.sizes.size(); ++dim) {
      const bool in_row = dim >= first && dim < end;
      per_row = per_row && (!in_row || tensor->sizes[dim] == 1);
      call.require(tensor->sizes[dim] == shape.sizes[dim] || (in_row && tensor->sizes[dim] == 1),
                   "its tensors differ in shape");
    }
    const int64_t stride = per_row ? 1 : joined_stride(*tensor, first, end);
    call.require(stride != 0, "the elements of a row do not have one distance");
    strides_[strides.size()] = stride;
    strides.emplace_back(tensor->strides.begin(), tensor->strides.end());
  }
  outer_ = Iteration(outer, strides);
  call.require(outer_.fits(), "its tensors have too many dims");
}

}  // namespace dc::runtime::kernel::native
