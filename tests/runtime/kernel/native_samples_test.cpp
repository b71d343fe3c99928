// The native kernels of ATen's operators on the samples of the aten provider: on planned addresses
// full of NaN, against PyTorch, in the element types and layouts that they take. The compiler's
// table says of each sample whether there is a kernel.
#include <algorithm>
#include <set>

#include "runtime/plan/kernel_signature.h"
#include "src/ir/native_ops.h"
#include "src/ir/ops.h"
#include "tests/runtime/kernel/aten_cases.h"

namespace dc::runtime {
namespace {

using base::DType;

// The bound of one result. PyTorch's layer norm rounds its sums over rows to the operands' type on
// the way to a gradient in f32, and so does its batch norm the bias's gradient, where operands are
// not contiguous; ours do not. Where old and new running statistics of 16 bits nearly cancel each
// other, PyTorch's are up to 0.02 of the largest away from those in f64.
double bound_of(const AtenCase& sample, size_t result) {
  const DType dtype = sample.results[result].dtype;
  if (sample.op == "aten._native_batch_norm_legit_functional.default" && result >= 3)
    return 2 * native_bound(dtype);
  const bool rounds = sample.op == "aten.native_layer_norm_backward.default" ||
                      (result == 2 && sample.op.ends_with("batch_norm_backward.default"));
  if (!rounds) return native_bound(dtype);
  return std::max(native_bound(dtype), native_bound(sample.results[0].dtype));
}

// Whether PyTorch computes a 16-bit result in f32 and rounds it once, so that but the last bit is
// certain. Behind the last vector of a row it rounds the product of `alpha`, too.
bool rounds_once(const AtenCase& sample, DType dtype) {
  if (dtype != DType::BF16 && dtype != DType::F16) return false;
  const ir::AtenClass cls = ir::aten_info(sample.op)->cls;
  const bool has_alpha = std::any_of(
      sample.arguments.begin(), sample.arguments.end(),
      [](const std::string& line) { return line.find(" alpha ") != std::string::npos; });
  return (cls == ir::AtenClass::Pointwise || cls == ir::AtenClass::Reduce) && !has_alpha;
}

// Whether the compiler would choose the native kernel. It may leave out what the kernel takes, but
// never the other way round.
bool is_taken(kernel::KernelProvider& provider, KernelBench& bench, plan::Instruction& step) {
  step.provider = plan::Provider::Native;
  const bool chosen = ir::has_native_kernel(plan::signature_of(bench.plan(), step));
  const auto scratch = provider.measure_scratch(step, bench.addresses());
  if (scratch.ok() && *scratch > 0) step.scratch = bench.slice(*scratch);
  const auto kernel = provider.prepare(step, bench.addresses());
  EXPECT_TRUE(!chosen || kernel.ok()) << kernel.status().to_string();
  const bool left_out = kernel.ok() && !chosen;
  EXPECT_FALSE(left_out && step.op != "aten.native_layer_norm.default");
  return chosen && kernel.ok();
}

void run_sample(kernel::KernelProvider& provider, const AtenCase& sample,
                std::set<std::string>& taken) {
  KernelBench bench;
  plan::Instruction step = place(bench, sample);
  if (!is_taken(provider, bench, step)) return;
  taken.insert(sample.op);
  auto kernel = provider.prepare(step, bench.addresses());
  for (int repeat = 0; repeat < 2; ++repeat) {
    const auto status = (*kernel)->launch(*device::cpu_device().make_stream());
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      if (step.outputs[i] < 0 || !has_values(sample)) continue;
      EXPECT_LE(difference(bench, step.outputs[i], sample.results[i]), bound_of(sample, i))
          << "result " << i;
      if (!rounds_once(sample, sample.results[i].dtype)) continue;
      EXPECT_EQ(beyond_last_bit(bench, step.outputs[i], sample.results[i]), 0) << "result " << i;
    }
  }
}

TEST(NativeSamples, GivePyTorchsNumbers) {
  const auto provider = kernel::make_native_provider();
  std::set<std::string> taken;
  for (const char* path : {DC_ATEN_SAMPLES, DC_NATIVE_SAMPLES}) {
    std::vector<AtenCase> samples = read_cases(path);
    add_cuda_attention(samples);
    for (const AtenCase& sample : samples) {
      const testing::ScopedTrace trace(__FILE__, __LINE__, sample.op + " " + sample.name);
      run_sample(*provider, sample, taken);
    }
  }
  for (const ir::NativeOp& op : ir::native_ops()) {
    EXPECT_TRUE(taken.contains(std::string(op.overload))) << op.overload << " runs no sample";
  }
}

}  // namespace
}  // namespace dc::runtime
