// The native kernels of ATen's operators on the samples of the aten provider: on planned addresses
// full of NaN, against PyTorch, in the element types and layouts that they take.
#include <set>

#include "tests/runtime/kernel/aten_cases.h"

namespace dc::runtime {
namespace {

using base::DType;

// Largest difference relative to the largest magnitude of the expected result: a few roundings of
// the type that the result is stored in, and of f32, which is computed in.
double bound_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return 1e-12;
    case DType::F32:
      return 3e-6;
    case DType::F16:
      return 0x1p-9;
    case DType::BF16:
      return 0x1p-6;
    default:
      return 0;
  }
}

// The bound of one result. PyTorch's layer norm rounds its sums over rows to the operands' type on
// the way to a gradient in f32; ours does not.
double bound_of(const AtenCase& sample, size_t result) {
  const DType dtype = sample.results[result].dtype;
  if (sample.op != "aten.native_layer_norm_backward.default") return bound_of(dtype);
  return std::max(bound_of(dtype), bound_of(sample.results[0].dtype));
}

bool has_values(const std::string& op) { return op.find("empty") == std::string::npos; }

void run_sample(kernel::KernelProvider& provider, const AtenCase& sample,
                std::set<std::string>& taken, std::set<std::string>& refused) {
  KernelBench bench;
  const plan::Instruction step = place(bench, sample);
  auto kernel = provider.prepare(step, bench.addresses());
  if (!kernel.ok()) {
    EXPECT_EQ(kernel.status().kind(), base::ErrorKind::Unsupported) << kernel.status().to_string();
    // A kernel that exists takes the element types of training.
    const bool common = sample.name.find("_f32_") != std::string::npos ||
                        sample.name.find("_bf16_") != std::string::npos;
    if (common && kernel.status().code() != "DC6131") refused.insert(sample.op);
    return;
  }
  taken.insert(sample.op);
  for (int repeat = 0; repeat < 2; ++repeat) {
    const auto status = (*kernel)->launch(*device::cpu_device().make_stream());
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      if (step.outputs[i] < 0 || !has_values(sample.op)) continue;
      EXPECT_LE(difference(bench, step.outputs[i], sample.results[i]), bound_of(sample, i))
          << "result " << i;
    }
  }
}

TEST(NativeSamples, GivePyTorchsNumbers) {
  const auto provider = kernel::make_native_provider();
  std::set<std::string> taken, refused;
  for (const AtenCase& sample : read_cases(DC_ATEN_SAMPLES)) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, sample.op + " " + sample.name);
    run_sample(*provider, sample, taken, refused);
  }
  EXPECT_GT(taken.size(), 160u);
  EXPECT_EQ(refused, std::set<std::string>());
}

}  // namespace
}  // namespace dc::runtime
