// Sizes and strides of a tensor, in elements; both lists have its number of dims. The product of
// the sizes must fit an int64_t: checked_product() (checked.h) is for sizes that were just read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dc::base {

inline int64_t numel(std::span<const int64_t> sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

// As Python writes a list: [2, 3].
inline std::string shape_text(std::span<const int64_t> sizes) {
  std::string text = "[";
  for (size_t dim = 0; dim < sizes.size(); ++dim)
    text += (dim ? ", " : "") + std::to_string(sizes[dim]);
  return text + "]";
}

// From the first element to behind the last one that the strides reach; 0 without elements.
inline int64_t extent(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  int64_t last = 0;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] == 0) return 0;
    last += (sizes[dim] - 1) * strides[dim];
  }
  return last + 1;
}

// Row-major without gaps. The stride of a dim of one element is never used, nor is any without
// elements.
inline bool is_contiguous(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return true;
  int64_t expected = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    if (sizes[dim] == 1) continue;
    if (strides[dim] != expected) return false;
    expected *= sizes[dim];
  }
  return true;
}

// Those of a row-major tensor without gaps; a dim of no elements counts as one, as in PyTorch.
inline std::vector<int64_t> contiguous_strides(std::span<const int64_t> sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    strides[dim] = stride;
    stride *= std::max<int64_t>(sizes[dim], 1);
  }
  return strides;
}

// Whether a tensor of the one shape can be repeated to the other, as PyTorch broadcasts.
inline bool broadcasts_to(std::span<const int64_t> from, std::span<const int64_t> to) {
  if (from.size() > to.size()) return false;
  const size_t added = to.size() - from.size();
  for (size_t dim = 0; dim < from.size(); ++dim) {
    if (from[dim] != 1 && from[dim] != to[added + dim]) return false;
  }
  return true;
}

}  // namespace dc::base
