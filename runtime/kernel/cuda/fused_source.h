// CUDA C++ for an Expression: one kernel, of which each thread computes elements of all results.
#pragma once

#include "runtime/kernel/cuda/kernel_source.h"
#include "runtime/kernel/native/pointwise/expression_tensors.h"

namespace dc::runtime::kernel::cuda {

// A kernel that gives the bits of the native kernels of the expression's operations, run one after
// the other: the types of runtime/kernel/scalar, each value rounded to its element type. Shapes and
// strides are constants in it. Its parameter has the addresses of element 0 of the results, then of
// the operands. Equal arguments give equal text; the name is a hash of the text.
//
// Unsupported (81) for an operation that is not element-wise.
base::Result<KernelSource> fused_source(const base::Expression& expression,
                                        const native::ExpressionTensors& tensors);

}  // namespace dc::runtime::kernel::cuda
