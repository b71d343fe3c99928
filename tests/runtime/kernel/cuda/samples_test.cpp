// The kernels by hand of the model's operators on PyTorch's samples (tests/runtime/kernel): every
// overload, lengths around blocks, views, several element types. They run on the double of a GPU,
// so nothing about GPUs follows.
#include <gtest/gtest.h>

#include <set>

#include "runtime/kernel/cuda/model_kernels.h"
#include "src/ir/native_ops.h"
#include "tests/runtime/kernel/aten_cases.h"
#include "tests/runtime/kernel/cuda/gpu_bench.h"
#include "tests/runtime/kernel/cuda/kernel_cache.h"

namespace dc::runtime {
namespace {

using base::DType;

// As of the CPU's kernels on the same samples.
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
double bound_of(const AtenCase& sample, size_t result) {
  const double bound = bound_of(sample.results[result].dtype);
  // PyTorch rounds its sums over rows to the operands' type.
  const bool rounds = sample.op == "aten.native_layer_norm_backward.default";
  return rounds ? std::max(bound, bound_of(sample.results[0].dtype)) : bound;
}

bool has_values(const std::string& op) { return op.find("empty") == std::string::npos; }

// False if there is no kernel of this sample.
bool run_sample(const AtenCase& sample) {
  KernelBench bench;
  const plan::Instruction step = place(bench, sample);
  const auto memory = try_on_gpu(bench, step, 2);
  if (!memory.ok()) {
    EXPECT_EQ(base::exit_code(memory.status().kind()), 81) << memory.status().to_string();
    return false;
  }
  std::ranges::copy(*memory, bench.used().begin());
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    if (step.outputs[i] < 0 || !has_values(sample.op)) continue;
    EXPECT_LE(difference(bench, step.outputs[i], sample.results[i]), bound_of(sample, i))
        << "result " << i;
  }
  return true;
}

// Where the samples are; on another machine the environment says so (scripts/benchmark/gpu.py).
std::string path_of(const char* variable, const char* otherwise) {
  const char* given = std::getenv(variable);
  return given != nullptr ? given : otherwise;
}

TEST(CudaSamples, GivePyTorchsNumbers) {
  std::set<std::string> ops, refused;
  int taken = 0;
  for (const std::string& path : {path_of("DCC_ATEN_SAMPLES", DC_ATEN_SAMPLES),
                                  path_of("DCC_NATIVE_SAMPLES", DC_NATIVE_SAMPLES)}) {
    for (const AtenCase& sample : read_cases(path.c_str())) {
      if (kernel::cuda::find_model_kernel(sample.op) == nullptr) continue;
      const testing::ScopedTrace trace(__FILE__, __LINE__, sample.op + " " + sample.name);
      if (run_sample(sample)) {
        ops.insert(sample.op);
        ++taken;
      } else {
        refused.insert(sample.op + " " + sample.name);
      }
    }
  }
  for (const ir::NativeOp& op : ir::native_ops()) {
    const std::string name(op.overload);
    EXPECT_TRUE(kernel::cuda::find_model_kernel(name) == nullptr || ops.contains(name))
        << name << " runs no sample";
  }
  RecordProperty("taken", taken);
  for (const std::string& name : refused) std::printf("no kernel: %s\n", name.c_str());
  std::printf("%d samples of %zu operators\n", taken, ops.size());
}

}  // namespace
}  // namespace dc::runtime
