// Every operator that CPUs have a kernel of has one for GPUs.
#include <gtest/gtest.h>

#include "src/ir/native_ops.h"
#include "src/ir/ops.h"
#include "tests/runtime/kernel/cuda/gpu_bench.h"

namespace dc::runtime {
namespace {

// Prepares the operator without arguments: what has a kernel says what is missing, if anything is.
bool has_kernel(std::string_view op) {
  KernelBench bench;
  const auto kernel =
      gpu_provider().prepare(instruction(std::string(op), {}, {}), bench.addresses());
  return kernel.ok() || kernel.status().code() != "DC6155";
}

// A plan that runs without libtorch on CPUs has all its kernels on GPUs.
TEST(CudaKernels, AreThereForEveryOperatorThatCpusHaveOneOf) {
  for (const ir::NativeOp& op : ir::native_ops())
    EXPECT_TRUE(has_kernel(op.overload)) << op.overload;
  EXPECT_FALSE(has_kernel("aten.cumprod.default"));
}

TEST(CudaKernels, AreThereForTheStepsOwnOperators) {
  constexpr ir::OpKind kKinds[] = {
#define DC_OP(id, ...) ir::OpKind::id,
#include "src/ir/ops.def"
#undef DC_OP
  };
  int checked = 0;
  for (const ir::OpKind kind : kKinds) {
    const ir::OpInfo& op = ir::info(kind);
    if (op.traits.provider != ir::Provider::Native) continue;
    EXPECT_TRUE(has_kernel(op.kernel)) << op.kernel;
    ++checked;
  }
  EXPECT_GT(checked, 10);
}

}  // namespace
}  // namespace dc::runtime
