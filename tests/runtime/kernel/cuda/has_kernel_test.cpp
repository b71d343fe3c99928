// What the compiler knows of kernels for GPUs, next to the kernels that there are.
#include "runtime/kernel/cuda/has_kernel.h"

#include <gtest/gtest.h>

#include "src/ir/native_ops.h"
#include "src/ir/ops.h"

namespace dc::runtime {
namespace {

TEST(CudaKernels, AreThoseThatTheCompilerCountsOn) {
  for (const ir::NativeOp& op : ir::native_ops()) {
    EXPECT_EQ(kernel::cuda::has_kernel(op.overload), op.is_on_gpus) << op.overload;
    EXPECT_EQ(ir::has_gpu_kernel(op.overload), op.is_on_gpus) << op.overload;
  }
  EXPECT_FALSE(ir::has_gpu_kernel("aten.convolution.default"));
  EXPECT_TRUE(ir::has_gpu_kernel("aten.silu.default"));
  EXPECT_FALSE(ir::has_gpu_kernel("aten.nothing.default"));
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
