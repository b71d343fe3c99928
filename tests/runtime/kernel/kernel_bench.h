// A one-rank arena with a plan around it, for tests of kernels: add tensors, build an instruction,
// run it.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/device/device.h"
#include "runtime/kernel/kernel.h"

namespace dc::runtime {

class KernelBench {
 public:
  using Sizes = std::vector<int64_t>;
  static constexpr int64_t kCapacity = 40 << 20;

  explicit KernelBench(int rank = 0)
      : rank_(rank),
        memory_(static_cast<std::byte*>(
            mmap(nullptr, kCapacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    plan_.slices.reserve(256);
    plan_.tensors.reserve(256);
    plan_.arena_bytes = {kCapacity};
    plan_.mesh = {{"dp", rank + 1}};
    EXPECT_NE(memory_, MAP_FAILED);
  }

  ~KernelBench() { munmap(memory_, kCapacity); }
  KernelBench(const KernelBench&) = delete;
  KernelBench& operator=(const KernelBench&) = delete;

  static Sizes contiguous(const Sizes& sizes) {
    Sizes strides(sizes.size());
    int64_t step = 1;
    for (size_t dim = sizes.size(); dim-- > 0;) {
      strides[dim] = step;
      step *= std::max<int64_t>(sizes[dim], 1);
    }
    return strides;
  }

  // From the first to behind the last element.
  static int64_t bytes(const plan::Tensor& tensor) {
    int64_t last = 0;
    for (size_t dim = 0; dim < tensor.sizes.size(); ++dim) {
      if (tensor.sizes[dim] == 0) return 0;
      last += (tensor.sizes[dim] - 1) * tensor.strides[dim];
    }
    return (last + 1) * base::byte_size(tensor.dtype);
  }

  int32_t slice(int64_t bytes) {
    const int64_t rounded = (bytes + 63) / 64 * 64;
    plan_.slices.push_back({plan::Space::Device, used_, rounded, -1, 0, 0});
    EXPECT_LE(used_ + rounded, kCapacity);
    std::memset(memory_ + used_, 0xff, rounded);  // NaN in every floating type
    used_ += rounded;
    return static_cast<int32_t>(plan_.slices.size()) - 1;
  }

  int32_t tensor(base::DType dtype, const Sizes& sizes, Sizes strides = {}) {
    if (strides.empty()) strides = contiguous(sizes);
    plan::Tensor tensor;
    tensor.dtype = dtype;
    tensor.sizes = sizes;
    tensor.strides = strides;
    tensor.slice = slice(bytes(tensor));
    plan_.tensors.push_back(tensor);
    return static_cast<int32_t>(plan_.tensors.size()) - 1;
  }

  template <typename T>
  int32_t filled(base::DType dtype, const Sizes& sizes, const std::vector<T>& values) {
    const int32_t id = tensor(dtype, sizes);
    if (!values.empty()) std::memcpy(data<T>(id), values.data(), values.size() * sizeof(T));
    return id;
  }

  template <typename T>
  T* data(int32_t tensor) {
    return static_cast<T*>(addresses().bind(tensor).data);
  }
  template <typename T>
  std::vector<T> values(int32_t tensor) {
    const kernel::BoundTensor bound = addresses().bind(tensor);
    const T* start = static_cast<const T*>(bound.data);
    return std::vector<T>(start, start + bound.numel());
  }

  kernel::AddressMap addresses() const { return kernel::AddressMap(plan_, memory_, rank_); }
  plan::Plan& plan() { return plan_; }
  std::span<std::byte> used() const { return {memory_, static_cast<size_t>(used_)}; }

 private:
  int rank_;
  plan::Plan plan_;
  int64_t used_ = 0;
  std::byte* memory_;
};

inline plan::Arg tensor_arg(int32_t id, std::string name = "") {
  plan::Arg arg;
  arg.name = std::move(name);
  arg.kind = plan::ArgKind::Tensor;
  arg.i = id;
  return arg;
}
inline plan::Arg int_arg(std::string name, int64_t value) {
  plan::Arg arg;
  arg.name = std::move(name);
  arg.kind = plan::ArgKind::Int;
  arg.i = value;
  return arg;
}
inline plan::Arg float_arg(std::string name, double value) {
  plan::Arg arg;
  arg.name = std::move(name);
  arg.kind = plan::ArgKind::Float;
  arg.f = value;
  return arg;
}

inline plan::Arg list_arg(std::string name, const std::vector<int64_t>& values) {
  plan::Arg arg;
  arg.name = std::move(name);
  arg.kind = plan::ArgKind::Ints;
  arg.ints = values;
  return arg;
}

inline plan::Instruction instruction(std::string op, std::vector<plan::Arg> args,
                                     std::vector<int32_t> outputs = {}) {
  plan::Instruction result;
  result.op = std::move(op);
  result.args = std::move(args);
  result.outputs = std::move(outputs);
  return result;
}

// Prepares and launches with the native provider.
inline base::Status run_native(KernelBench& bench, const plan::Instruction& instruction) {
  auto provider = kernel::make_native_provider();
  auto kernel = provider->prepare(instruction, bench.addresses());
  if (!kernel.ok()) return std::move(kernel).status();
  return (*kernel)->launch(*device::cpu_device().make_stream());
}

}  // namespace dc::runtime
