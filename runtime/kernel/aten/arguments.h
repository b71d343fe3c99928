// From a plan's arguments to the stack of values that libtorch's dispatcher takes.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <functional>

#include "runtime/kernel/kernel.h"

namespace dc::runtime::kernel::aten {

c10::ScalarType scalar_type(base::DType dtype);

// The tensor that stands for a tensor of the plan: on the rank's memory, or on dummy memory.
using TensorSource = std::function<at::Tensor(int64_t tensor)>;

// One value per schema argument, by name; omitted arguments get their defaults. Devices become the
// CPU and generators none.
base::Result<torch::jit::Stack> build_stack(const c10::FunctionSchema& schema,
                                            const plan::Instruction& instruction,
                                            const TensorSource& tensors);

// Points the stack's tensors to where the host's cores find their bytes.
void resolve(torch::jit::Stack& stack, const device::Stream& stream);

}  // namespace dc::runtime::kernel::aten
