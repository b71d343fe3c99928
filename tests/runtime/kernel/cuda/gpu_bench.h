// Runs instructions on the double of a GPU (tests/double), and compares what they give with the
// CPU's kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "runtime/kernel/scalar/elements.h"
#include "src/base/shape.h"
#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {

// With DCR_SKIP_WITHOUT_GPU, tests are skipped where no GPU can be opened; else that is a failure.
class GpuOfTests final : public testing::Environment {
 public:
  void SetUp() override {
    const auto gpu = device::open_device(base::DeviceKind::Cuda);
    if (gpu.ok()) return;
    if (std::getenv("DCR_SKIP_WITHOUT_GPU") != nullptr)
      GTEST_SKIP() << "no GPU: " << gpu.status().to_string();
    FAIL() << gpu.status().to_string();
  }
};

inline device::Device& double_of_gpu() {
  return *device::open_device(base::DeviceKind::Cuda).value();
}
inline kernel::KernelProvider& gpu_provider() {
  static auto* const provider = kernel::make_cuda_provider(double_of_gpu()).release();
  return *provider;
}

// What all memory of the bench holds after the instruction ran on the double, twice; an error if
// there is no such kernel.
inline base::Result<std::vector<std::byte>> try_on_gpu(KernelBench& bench,
                                                       const plan::Instruction& instruction,
                                                       int times = 1) {
  device::Device& gpu = double_of_gpu();
  std::vector<std::byte> bytes(bench.used().begin(), bench.used().end());
  auto slab = gpu.allocate(static_cast<int64_t>(bytes.size())).value();
  DC_RETURN_IF_ERROR(gpu.upload(slab->base(), bytes));
  const kernel::AddressMap addresses(bench.plan(), slab->base(), 0);
  DC_ASSIGN_OR_RETURN(const auto kernel, gpu_provider().prepare(instruction, addresses));
  auto stream = gpu.make_stream();
  for (int time = 0; time < times; ++time) DC_RETURN_IF_ERROR(kernel->launch(*stream));
  DC_RETURN_IF_ERROR(stream->drain());
  DC_RETURN_IF_ERROR(gpu.download(bytes, slab->base()));
  return bytes;
}
inline std::vector<std::byte> after_on_gpu(KernelBench& bench,
                                           const plan::Instruction& instruction) {
  auto bytes = try_on_gpu(bench, instruction);
  EXPECT_TRUE(bytes.ok()) << bytes.status().to_string();
  return bytes.ok() ? *std::move(bytes) : std::vector<std::byte>();
}

// Prepares and launches with the CPU's kernel, which gets the scratch that it needs.
inline base::Status run_on_cpu(KernelBench& bench, plan::Instruction instruction) {
  const auto provider = kernel::make_native_provider();
  DC_ASSIGN_OR_RETURN(const int64_t bytes,
                      provider->measure_scratch(instruction, bench.addresses()));
  if (bytes > 0) instruction.scratch = bench.slice(bytes);
  return run_native(bench, instruction);
}

inline double element_at(const std::byte* at, base::DType dtype) {
  namespace scalar = kernel::scalar;
  const auto as = [at](auto value) {
    std::memcpy(&value, at, sizeof value);
    return static_cast<double>(scalar::load(value));
  };
  switch (dtype) {
    case base::DType::F64:
      return as(double{});
    case base::DType::BF16:
      return as(scalar::BF16{});
    case base::DType::F16:
      return as(scalar::F16{});
    case base::DType::I64:
      return as(int64_t{});
    case base::DType::I32:
      return as(int32_t{});
    case base::DType::U8:
      return as(uint8_t{});
    case base::DType::Bool:
      return as(scalar::Bool{});
    default:
      return as(float{});
  }
}
// Of a tensor, in row-major order whatever its strides, from what all memory of the bench holds.
inline std::vector<double> elements_of(KernelBench& bench, std::span<const std::byte> memory,
                                       int32_t id) {
  const kernel::BoundTensor tensor = bench.addresses().bind(id);
  const std::byte* base =
      memory.data() + (static_cast<std::byte*>(tensor.data) - bench.used().data());
  std::vector<double> all;
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    int64_t rest = i, place = 0;
    for (size_t d = tensor.sizes.size(); d-- > 0; rest /= tensor.sizes[d])
      place += rest % tensor.sizes[d] * tensor.strides[d];
    all.push_back(element_at(base + place * base::byte_size(tensor.dtype), tensor.dtype));
  }
  return all;
}

// `tolerance`: relative to 1 and the value.
inline void expect_near(const std::vector<double>& got, const std::vector<double>& expected,
                        double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))) continue;
    ASSERT_NEAR(got[i], expected[i], tolerance * (1 + std::fabs(expected[i]))) << "element " << i;
  }
}
// Those results of an instruction that the CPU gives, nearly. The bench is then as the CPU leaves
// it.
inline void expect_near_cpu(KernelBench& bench, const plan::Instruction& instruction,
                            const std::vector<int32_t>& results, double tolerance) {
  const std::vector<std::byte> on_gpu = after_on_gpu(bench, instruction);
  ASSERT_FALSE(on_gpu.empty());
  const base::Status ran = run_on_cpu(bench, instruction);
  ASSERT_TRUE(ran.ok()) << ran.to_string();
  for (const int32_t id : results) {
    SCOPED_TRACE("tensor " + std::to_string(id));
    expect_near(elements_of(bench, on_gpu, id), elements_of(bench, bench.used(), id), tolerance);
  }
}
// All memory is as the CPU leaves it.
inline void expect_bits_of_cpu(KernelBench& bench, const plan::Instruction& instruction) {
  const std::vector<std::byte> got = after_on_gpu(bench, instruction);
  const std::vector<std::byte> before(bench.used().begin(), bench.used().end());
  const base::Status ran = run_native(bench, instruction);
  ASSERT_TRUE(ran.ok()) << ran.to_string();
  const std::vector<std::byte> expected(bench.used().begin(), bench.used().end());
  EXPECT_EQ(got, expected);
  EXPECT_NE(before, expected);  // something was done
  std::ranges::copy(before, bench.used().begin());
}

inline std::vector<float> noise(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}
// Fills the memory that a floating-point tensor reaches with noise.
inline int32_t noisy(KernelBench& bench, base::DType dtype, const KernelBench::Sizes& sizes,
                     unsigned seed, const KernelBench::Sizes& strides = {}) {
  namespace scalar = kernel::scalar;
  const int32_t id = bench.tensor(dtype, sizes, strides);
  const plan::Tensor& tensor = bench.plan().tensors[static_cast<size_t>(id)];
  const auto count = KernelBench::bytes(tensor) / base::byte_size(dtype);
  const std::vector<float> values = noise(count, seed);
  for (int64_t i = 0; i < count; ++i) {
    const float value = values[static_cast<size_t>(i)];
    if (dtype == base::DType::BF16)
      bench.data<scalar::BF16>(id)[i] = scalar::narrow_bf16(value);
    else if (dtype == base::DType::F16)
      bench.data<scalar::F16>(id)[i] = scalar::narrow_f16(value);
    else if (dtype == base::DType::F64)
      bench.data<double>(id)[i] = static_cast<double>(value);
    else
      bench.data<float>(id)[i] = value;
  }
  return id;
}
// A few roundings of the type.
inline double tolerance_of(base::DType dtype) {
  return dtype == base::DType::BF16 ? 0x1p-7 : dtype == base::DType::F16 ? 0x1p-10 : 4e-6;
}

}  // namespace dc::runtime
