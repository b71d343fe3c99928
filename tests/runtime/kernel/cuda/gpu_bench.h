// Runs instructions on the double of a GPU (tests/double).
#pragma once

#include <random>

#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {

// What all memory of the bench holds after the instruction ran on the double.
inline std::vector<std::byte> after_on_gpu(KernelBench& bench,
                                           const plan::Instruction& instruction) {
  device::Device& gpu = *device::open_device(base::DeviceKind::Cuda).value();
  static auto* const provider = kernel::make_cuda_provider(gpu).release();
  std::vector<std::byte> bytes(bench.used().begin(), bench.used().end());
  auto slab = gpu.allocate(static_cast<int64_t>(bytes.size())).value();
  gpu.upload(slab->base(), bytes);
  const kernel::AddressMap addresses(bench.plan(), slab->base(), 0);
  auto kernel = provider->prepare(instruction, addresses);
  EXPECT_TRUE(kernel.ok()) << kernel.status().to_string();
  if (!kernel.ok()) return {};
  auto stream = gpu.make_stream();
  EXPECT_TRUE((*kernel)->launch(*stream).ok());
  const base::Status done = stream->drain();
  EXPECT_TRUE(done.ok()) << done.to_string();
  gpu.download(bytes, slab->base());
  return bytes;
}

inline std::vector<float> noise(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace dc::runtime
