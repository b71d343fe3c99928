// Kernels of GPUs next to those of CPUs, which the compiler knows.
#include "runtime/kernel/cuda/has_kernel.h"

#include <gtest/gtest.h>

#include "src/ir/native_ops.h"
#include "src/ir/ops.h"

namespace dc::runtime {
namespace {

// A plan that runs without libtorch on CPUs has all its kernels on GPUs.
TEST(CudaKernels, AreThereForEveryOperatorThatCpusHaveOneOf) {
  for (const ir::NativeOp& op : ir::native_ops())
    EXPECT_TRUE(kernel::cuda::has_kernel(op.overload)) << op.overload;
  EXPECT_FALSE(kernel::cuda::has_kernel("aten.roll.default"));
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
    if (op.provider != ir::Provider::Native) continue;
    EXPECT_TRUE(kernel::cuda::has_kernel(op.kernel)) << op.kernel;
    ++checked;
  }
  EXPECT_GT(checked, 10);
}

}  // namespace
}  // namespace dc::runtime
