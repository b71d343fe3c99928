// A one-rank arena with a plan around it, for tests of kernels: add tensors, build an instruction,
// run it.
#pragma once

#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/kernel/kernel.h"

namespace dc::runtime {

class KernelBench {
 public:
  using Sizes = std::vector<int64_t>;
  static constexpr int64_t kCapacity = 16 << 20;

  explicit KernelBench(int rank = 0) : rank_(rank), memory_(new std::byte[kCapacity]) {
    plan_.slices.reserve(256);
    plan_.tensors.reserve(256);
    plan_.arena_bytes = {kCapacity};
    std::memset(memory_.get(), 0xff, kCapacity);  // NaN in every floating type
  }

  static Sizes contiguous(const Sizes& sizes) {
    Sizes strides(sizes.size());
    int64_t step = 1;
    for (size_t dim = sizes.size(); dim-- > 0;) {
      strides[dim] = step;
      step *= std::max<int64_t>(sizes[dim], 1);
    }
    return strides;
  }

  int32_t slice(int64_t bytes) {
    const int64_t rounded = (bytes + 63) / 64 * 64;
    plan_.slices.push_back({plan::Space::Device, used_, rounded, -1, 0, 0});
    used_ += rounded;
    EXPECT_LE(used_, kCapacity);
    return static_cast<int32_t>(plan_.slices.size()) - 1;
  }

  int32_t tensor(base::DType dtype, const Sizes& sizes, Sizes strides = {}) {
    if (strides.empty()) strides = contiguous(sizes);
    int64_t extent = 1;
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      extent = sizes[dim] == 0 ? 0 : extent + (extent > 0) * (sizes[dim] - 1) * strides[dim];
      if (extent == 0) break;
    }
    plan::Tensor tensor;
    tensor.dtype = dtype;
    tensor.sizes = sizes;
    tensor.strides = strides;
    tensor.slice = slice(extent * base::byte_size(dtype));
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
    const BoundTensor bound = addresses().bind(tensor);
    const T* start = static_cast<const T*>(bound.data);
    return std::vector<T>(start, start + bound.numel());
  }

  AddressMap addresses() const { return AddressMap(plan_, memory_.get(), rank_); }
  plan::Plan& plan() { return plan_; }

 private:
  int rank_;
  plan::Plan plan_;
  int64_t used_ = 0;
  std::unique_ptr<std::byte[]> memory_;
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
  auto provider = make_native_provider();
  auto kernel = provider->prepare(instruction, bench.addresses());
  if (!kernel.ok()) return std::move(kernel).status();
  return (*kernel)->launch();
}

}  // namespace dc::runtime
