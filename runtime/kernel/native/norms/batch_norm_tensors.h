// What a batch norm or its gradient reads and writes.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>

#include "runtime/kernel/native/norms/channels.h"
#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::native {

// One number per channel.
template <typename T>
class PerChannel {
 public:
  PerChannel() = default;
  explicit PerChannel(const std::optional<BoundTensor>& tensor) {
    if (!tensor) return;
    stride_ = tensor->strides[0];
    numbers_ = RowTensor<T>(*tensor, stride_);
  }

  bool given() const { return numbers_.given(); }
  T get(const device::Stream& stream, int64_t channel, T otherwise = T{}) const {
    return given() ? numbers_.get(numbers_.on(stream), channel * stride_) : otherwise;
  }
  void put(const device::Stream& stream, int64_t channel, T value) const {
    if (given()) numbers_.put(numbers_.on(stream), channel * stride_, value);
  }
  // Those of n channels; n <= kBlock.
  void read(const device::Stream& stream, int64_t first, int64_t n, T* to,
            T otherwise = T{}) const {
    if (!given()) return static_cast<void>(std::fill_n(to, n, otherwise));
    const T* numbers = numbers_.read(to, numbers_.on(stream), first, n);
    if (numbers != to) std::copy_n(numbers, n, to);
  }
  void write(const device::Stream& stream, int64_t first, int64_t n, const T* from) const {
    if (!given()) return;
    std::byte* base = numbers_.on(stream);
    T* target = numbers_.target(nullptr, base, first);
    target != nullptr ? static_cast<void>(std::copy_n(from, n, target))
                      : numbers_.write(from, base, first, n);
  }

 private:
  RowTensor<T> numbers_;
  int64_t stride_ = 0;
};

template <typename T>
inline T reciprocal_deviation(double variance, double eps) {
  return static_cast<T>(1.0 / std::sqrt(variance + eps));
}

template <typename T>
struct BatchNormTensors {
  Channels channels;  // of x and y; or of x, g and the gradient of x
  RowTensor<T> x, g, y;
  PerChannel<T> weight, bias, running_mean, running_var, mean, rstd;
  PerChannel<T> new_mean, new_var, weight_gradient, bias_gradient;
  StoreLanes store = nullptr;  // to y
  bool are_bf16 = false;       // x, g and y, in rows without gaps
  bool trains = false;
  double momentum = 0, eps = 0;

  // Whether bf16_of() has the elements of a chunk.
  bool is_bf16_in(const Chunk& chunk) const {
    return std::is_same_v<T, float> && are_bf16 && chunk.rows == 1;
  }
};

// The tensor `index` of a chunk that is one row, as elements in memory; f64 has no lanes of bf16.
template <typename T>
auto* bf16_of(const RowTensor<T>& tensor, std::byte* base, const Chunk& chunk, size_t index) {
  using Element = std::conditional_t<std::is_same_v<T, float>, BF16, T>;
  return reinterpret_cast<Element*>(tensor.row(base, chunk.at[index]));
}

// Kernels for tensors whose channels lie next to each other, as in planes of one element or with
// the channels innermost: many channels at once.
std::unique_ptr<Kernel> batch_norm_of_neighbours(const BatchNormTensors<float>& tensors);
std::unique_ptr<Kernel> batch_norm_of_neighbours(const BatchNormTensors<double>& tensors);
std::unique_ptr<Kernel> batch_norm_backward_of_neighbours(const BatchNormTensors<float>& tensors);
std::unique_ptr<Kernel> batch_norm_backward_of_neighbours(const BatchNormTensors<double>& tensors);

}  // namespace dc::runtime::kernel::native
