// Iteration over several tensors of one shape at once: dims are ordered and joined so that the
// innermost loop is long and, where the first tensor allows it, over neighbouring elements.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/kernel/kernel.h"

namespace dc::runtime::kernel::native {

// Of one iteration: those of a fused kernel, and what counts the indices along a dim.
inline constexpr size_t kMaxTensors = 17;
inline constexpr size_t kMaxDims = 16;  // after joining

using Offsets = std::array<int64_t, kMaxTensors>;  // one per tensor, elements

// Strides of `tensor` as if it had the shape `sizes`: 0 in the dims along which it is broadcast.
// Nothing if it cannot be broadcast to that shape.
std::optional<std::vector<int64_t>> broadcast_strides(const BoundTensor& tensor,
                                                      std::span<const int64_t> sizes);

// ByStrides: the order of the strides of tensor 0, the largest first.
enum class DimOrder : uint8_t { ByStrides, AsTheyAre };

class Iteration {
 public:
  Iteration() = default;
  // strides[t]: of tensor t, one per dim.
  Iteration(std::span<const int64_t> sizes, std::span<const std::vector<int64_t>> strides,
            DimOrder order = DimOrder::ByStrides);

  bool fits() const { return dims_.size() <= kMaxDims; }  // to be checked before anything runs
  int64_t inner() const { return inner_; }
  int64_t inner_stride(size_t tensor) const { return inner_strides_[tensor]; }
  // From one row of a plane to the next.
  int64_t outer_stride(size_t tensor) const {
    return dims_.empty() ? 0 : dims_.back().strides[tensor];
  }
  int64_t count() const { return count_; }
  bool is_row() const { return dims_.empty() && count_ > 0; }  // one, with elements

  // All that is joined, outermost first, the innermost last; none for a single element.
  struct Dim {
    int64_t size = 0;
    Offsets strides{};
  };
  std::vector<Dim> dims() const {
    std::vector<Dim> all = dims_;
    if (inner_ != 1) all.push_back({inner_, inner_strides_});
    return all;
  }

  // Calls row(offsets) for each innermost row, offsets being those of its first elements. Rows come
  // in the order of dims. Allocates nothing.
  template <typename Row>
  void for_each_row(Row&& row) const {
    walk(dims_.size(), row);
  }

  // The same for several rows at once: plane(offsets, rows, steps from one row to the next).
  template <typename Plane>
  void for_each_plane(Plane&& plane) const {
    if (dims_.empty()) {
      if (count_ > 0) plane(Offsets{}, int64_t{1}, Offsets{});
      return;
    }
    walk(dims_.size() - 1,
         [&](const Offsets& offsets) { plane(offsets, dims_.back().size, dims_.back().strides); });
  }

 private:
  // Over the outermost `depth` dims.
  template <typename F>
  void walk(size_t depth, F&& f) const {
    if (count_ == 0) return;
    std::array<int64_t, kMaxDims> at{};
    Offsets offsets{};
    for (;;) {
      f(static_cast<const Offsets&>(offsets));
      size_t dim = depth;
      for (; dim-- > 0;) {
        const Dim& loop = dims_[dim];
        for (size_t t = 0; t < tensors_; ++t) offsets[t] += loop.strides[t];
        if (++at[dim] < loop.size) break;
        for (size_t t = 0; t < tensors_; ++t) offsets[t] -= loop.strides[t] * loop.size;
        at[dim] = 0;
      }
      if (dim == static_cast<size_t>(-1)) return;
    }
  }

  std::vector<Dim> dims_;  // outermost first, without the innermost
  int64_t inner_ = 1, count_ = 1;
  Offsets inner_strides_{};
  size_t tensors_ = 0;
};

}  // namespace dc::runtime::kernel::native
