#include "runtime/kernel/native/norms/rows.h"

#include <algorithm>
#include <optional>

#include "src/base/shape.h"

namespace dc::runtime::kernel::native {
namespace {

// The one stride of the dims [first, end), which is 0 where a tensor is expanded; nothing if they
// have several.
std::optional<int64_t> joined_stride(const BoundTensor& tensor, size_t first, size_t end) {
  std::optional<int64_t> stride, expected;
  for (size_t dim = end; dim-- > first;) {
    if (tensor.sizes[dim] == 1) continue;
    if (expected && tensor.strides[dim] != *expected) return std::nullopt;
    if (!stride) stride = tensor.strides[dim];
    expected = tensor.strides[dim] * tensor.sizes[dim];
  }
  return stride.value_or(1);
}

}  // namespace

Rows::Rows(Call& call, const BoundTensor& shape, size_t first, size_t end,
           std::initializer_list<const BoundTensor*> tensors,
           std::initializer_list<const BoundTensor*> numbers)
    : tensors_(tensors.size() + numbers.size()) {
  if (!call.ok()) return;
  length_ = base::numel(shape.sizes.subspan(first, end - first));
  std::vector<int64_t> outer(shape.sizes.begin(), shape.sizes.end());
  for (size_t dim = first; dim < end; ++dim) outer[dim] = 1;
  std::vector<std::vector<int64_t>> strides;
  for (const BoundTensor* tensor : tensors) {
    call.require(std::ranges::equal(tensor->sizes, shape.sizes), "its tensors differ in shape");
    if (!call.ok()) return;
    const std::optional<int64_t> stride = joined_stride(*tensor, first, end);
    call.require(stride.has_value(), "the elements of a row do not have one distance");
    strides_[strides.size()] = stride.value_or(1);
    strides.emplace_back(tensor->strides.begin(), tensor->strides.end());
  }
  for (const BoundTensor* tensor : numbers) {
    call.require(std::ranges::equal(tensor->sizes, outer), "it takes one number per row");
    if (!call.ok()) return;
    strides.emplace_back(tensor->strides.begin(), tensor->strides.end());
  }
  outer_ = Iteration(outer, strides);
  call.require(outer_.fits(), "its tensors have too many dims");
}

}  // namespace dc::runtime::kernel::native
