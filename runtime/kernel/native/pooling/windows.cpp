#include "runtime/kernel/native/pooling/windows.h"

#include <algorithm>

namespace dc::runtime::kernel::native {
namespace {

// Of a dim, and of what is said of its windows: positions are computed without overflow, and the
// windows kept in tables.
constexpr int64_t kMostPositions = int64_t{1} << 24;

// One number for all dims, or one for each.
std::vector<int64_t> per_dim(Call& call, std::string_view name, size_t dims,
                             const std::vector<int64_t>& otherwise, int64_t least) {
  std::vector<int64_t> numbers = call.integers(name);
  if (numbers.empty()) numbers = otherwise;
  if (numbers.size() == 1) numbers.resize(dims, numbers[0]);
  const bool fits = numbers.size() == dims && std::ranges::all_of(numbers, [&](int64_t number) {
                      return number >= least && number <= kMostPositions;
                    });
  call.require(fits, "argument '" + std::string(name) + "' does not fit the pooled dims");
  return numbers;
}

// The same batch and channels, and dims that windows can be made of.
bool can_be_pooled(Call& call, const BoundTensor& in, const BoundTensor& out, size_t dims) {
  const size_t all = in.sizes.size();
  call.require((all == dims + 1 || all == dims + 2) && out.sizes.size() == all,
               "pooling takes channels, or a batch of them");
  if (!call.ok()) return false;
  for (size_t dim = 0; dim < all; ++dim) {
    if (dim < all - dims) {
      call.require(in.sizes[dim] == out.sizes[dim], "its tensors differ in batch or channels");
    } else {
      for (const int64_t size : {in.sizes[dim], out.sizes[dim]})
        call.require(size > 0 && size <= kMostPositions,
                     "a pooled dim is empty or has more than 2^24 positions");
    }
  }
  return call.ok();
}

}  // namespace

PooledDim::PooledDim(int64_t in, std::vector<Window> windows,
                     const std::optional<WindowShape>& shape)
    : shape_(shape),
      windows_(std::move(windows)),
      covering_(static_cast<size_t>(in)),
      step_(shape ? shape->dilation : 1) {
  for (size_t i = 0; i < windows_.size(); ++i) {
    const auto output = static_cast<int64_t>(i);
    for (int64_t at = windows_[i].begin; at < windows_[i].end; at += step_) {
      Outputs& outputs = covering_[static_cast<size_t>(at)];
      if (outputs.begin == outputs.end) outputs.begin = output;
      outputs.end = output + 1;
    }
  }
}

PooledDim PooledDim::sliding(int64_t in, int64_t out, const WindowShape& shape) {
  std::vector<Window> windows;
  windows.reserve(static_cast<size_t>(out));
  for (int64_t i = 0; i < out; ++i) {
    const int64_t from = i * shape.stride - shape.padding;
    const int64_t to = from + (shape.size - 1) * shape.dilation + 1;
    Window window{from, std::min(to, in), 1};
    if (from < 0)
      window.begin = from + (-from + shape.dilation - 1) / shape.dilation * shape.dilation;
    window.begin = std::min(window.begin, in);
    window.end = std::max(window.end, window.begin);
    window.count =
        shape.counts_padding ? std::min(to, in + shape.padding) - from : window.end - window.begin;
    window.count = std::max<int64_t>(window.count, 1);
    windows.push_back(window);
  }
  return {in, std::move(windows), shape};
}

PooledDim PooledDim::adaptive(int64_t in, int64_t out) {
  std::vector<Window> windows;
  windows.reserve(static_cast<size_t>(out));
  for (int64_t i = 0; i < out; ++i) {
    const int64_t begin = i * in / out, end = ((i + 1) * in + out - 1) / out;
    windows.push_back({begin, end, end - begin});
  }
  return {in, std::move(windows), std::nullopt};
}

bool PooledDim::has_empty_window() const {
  return std::ranges::any_of(windows_, [](const Window& each) { return each.begin >= each.end; });
}

bool PooledDim::windows_overlap() const {
  return std::ranges::any_of(covering_,
                             [](const Outputs& each) { return each.end - each.begin > 1; });
}

bool Pooled::windows_overlap() const {
  return std::ranges::any_of(dims, &PooledDim::windows_overlap);
}

bool Pooled::has_empty_window() const {
  return std::ranges::any_of(dims, &PooledDim::has_empty_window);
}

std::optional<Pooled> sliding_windows(Call& call, const BoundTensor& in, const BoundTensor& out,
                                      size_t dims) {
  if (!call.ok() || !can_be_pooled(call, in, out, dims)) return std::nullopt;
  const std::vector<int64_t> sizes = per_dim(call, "kernel_size", dims, {}, 1);
  const std::vector<int64_t> strides = per_dim(call, "stride", dims, sizes, 1);
  const std::vector<int64_t> paddings = per_dim(call, "padding", dims, {0}, 0);
  const std::vector<int64_t> dilations = per_dim(call, "dilation", dims, {1}, 1);
  const bool counts_padding = call.integer("count_include_pad", 1) != 0;
  if (!call.ok()) return std::nullopt;
  Pooled pooled;
  for (size_t i = 0; i < dims; ++i) {
    const size_t dim = in.sizes.size() - dims + i;
    pooled.dims[3 - dims + i] =
        PooledDim::sliding(in.sizes[dim], out.sizes[dim],
                           {sizes[i], strides[i], paddings[i], dilations[i], counts_padding});
  }
  return pooled;
}

std::optional<Pooled> adaptive_windows(Call& call, const BoundTensor& in, const BoundTensor& out,
                                       size_t dims) {
  if (!call.ok() || !can_be_pooled(call, in, out, dims)) return std::nullopt;
  Pooled pooled;
  for (size_t i = 0; i < dims; ++i) {
    const size_t dim = in.sizes.size() - dims + i;
    pooled.dims[3 - dims + i] = PooledDim::adaptive(in.sizes[dim], out.sizes[dim]);
  }
  return pooled;
}

}  // namespace dc::runtime::kernel::native
