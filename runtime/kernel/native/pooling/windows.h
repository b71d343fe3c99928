// Windows of pooling along one dim: which positions of the input an output covers, and the other
// way round.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/kernel/native/call.h"

namespace dc::runtime::kernel::native {

// The positions begin, begin + step, ... below end, all inside the input.
struct Window {
  int64_t begin = 0, end = 0;
  // Elements that an average divides by; with padding, those outside of the input may count.
  int64_t count = 1;
};

struct WindowShape {
  int64_t size = 1, stride = 1, padding = 0, dilation = 1;
  bool counts_padding = false;
};

class PooledDim {
 public:
  PooledDim() : PooledDim(1, {Window{0, 1, 1}}, WindowShape()) {}
  // Windows of one size; of an output of `out` positions.
  static PooledDim sliding(int64_t in, int64_t out, const WindowShape& shape);
  // Output i covers the input from i / out to (i + 1) / out of its length.
  static PooledDim adaptive(int64_t in, int64_t out);

  int64_t in() const { return static_cast<int64_t>(covering_.size()); }
  int64_t out() const { return static_cast<int64_t>(windows_.size()); }
  int64_t step() const { return step_; }
  const Window& window(int64_t output) const { return windows_[static_cast<size_t>(output)]; }
  // The outputs whose windows may have this position: all that have it are among them.
  struct Outputs {
    int64_t begin = 0, end = 0;
  };
  const Outputs& covering(int64_t position) const {
    return covering_[static_cast<size_t>(position)];
  }
  bool has_empty_window() const;
  bool windows_overlap() const;  // some position is in several
  // How sliding windows were made; nothing for adaptive ones.
  const std::optional<WindowShape>& shape() const { return shape_; }

 private:
  PooledDim(int64_t in, std::vector<Window> windows, const std::optional<WindowShape>& shape);

  std::optional<WindowShape> shape_;
  std::vector<Window> windows_;
  std::vector<Outputs> covering_;
  int64_t step_ = 1;
};

// Dims of the windows of one instruction, outermost first: depth, height, width; `dims` (2 or 3) of
// them are given, the others have one position.
struct Pooled {
  std::array<PooledDim, 3> dims;
  int64_t in() const { return dims[0].in() * dims[1].in() * dims[2].in(); }
  int64_t out() const { return dims[0].out() * dims[1].out() * dims[2].out(); }
  bool has_empty_window() const;
  bool windows_overlap() const;
};

// The windows that the arguments 'kernel_size', 'stride', 'padding' and 'dilation' say between
// tensors of these shapes, whose last `dims` dims are pooled; nothing if they are refused.
std::optional<Pooled> sliding_windows(Call& call, const BoundTensor& in, const BoundTensor& out,
                                      size_t dims);
std::optional<Pooled> adaptive_windows(Call& call, const BoundTensor& in, const BoundTensor& out,
                                       size_t dims);

}  // namespace dc::runtime::kernel::native
