#include "runtime/kernel/onednn/convolution_layout.h"

#include <algorithm>

#include "src/base/shape.h"

namespace dc::runtime::kernel::onednn {

std::optional<std::vector<int64_t>> dense_strides_of(const BoundTensor& tensor) {
  std::vector<int64_t> sizes(tensor.sizes.begin(), tensor.sizes.end());
  if (base::is_contiguous(sizes, tensor.strides)) return base::contiguous_strides(sizes);
  if (sizes.size() < 3) return std::nullopt;
  // Rotates the channels behind the other dims, and their strides back.
  std::vector<int64_t> strides(tensor.strides.begin(), tensor.strides.end());
  std::rotate(sizes.begin() + 1, sizes.begin() + 2, sizes.end());
  std::rotate(strides.begin() + 1, strides.begin() + 2, strides.end());
  if (!base::is_contiguous(sizes, strides)) return std::nullopt;
  strides = base::contiguous_strides(sizes);
  std::rotate(strides.begin() + 1, strides.end() - 1, strides.end());
  return strides;
}

Layout layout_of_weight(const BoundTensor& weight, const std::vector<int64_t>& strides,
                        const native::ConvolutionShape& shape) {
  Layout layout{{weight.sizes.begin(), weight.sizes.end()}, strides};
  const int64_t per_group = layout.sizes[0] / shape.groups, step = strides[0] * per_group;
  layout.sizes[0] = per_group;
  if (shape.transposed) {
    std::swap(layout.sizes[0], layout.sizes[1]);
    std::swap(layout.strides[0], layout.strides[1]);
  }
  if (shape.groups == 1) return layout;
  layout.sizes.insert(layout.sizes.begin(), shape.groups);
  layout.strides.insert(layout.strides.begin(), step);
  return layout;
}

}  // namespace dc::runtime::kernel::onednn
