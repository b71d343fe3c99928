// Scratch: how much memory a kernel allocates for itself while it runs. Upper bounds from shapes,
// for use without a profile.
//
// They follow what PyTorch 2.11's CPU kernels allocate at once, as recorded in
// tests/src/cost/scratch_test.cpp: a kernel that needs more makes the runtime take memory on top of
// the plan's and ask for a profile, so a bound may be generous but should not be short.
#pragma once

#include "src/base/kernel_signature.h"
#include "src/base/units.h"
#include "src/ir/ops.h"

namespace dc::cost {

// 0 for views and most native kernels. Native products, attention, convolutions, gradients of
// pooling and the output layer get the bytes that their kernels ask for.
base::Bytes estimate_scratch(const base::KernelSignature& signature, int threads);

// Whether there are as many operands as the table of operators says, and a result, so that rules
// may read them by position: a plan that was not made by this compiler may have others.
bool has_its_tensors(const ir::AtenInfo& aten, const base::KernelTensors& tensors);

}  // namespace dc::cost
