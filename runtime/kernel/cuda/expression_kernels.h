// Kernels of expressions, and of operators that are expressions of one operation.
#pragma once

#include <memory>

#include "runtime/kernel/cuda/workshop.h"
#include "runtime/kernel/native/call.h"

namespace dc::runtime::kernel::cuda {

// dc.fused.
base::Result<std::unique_ptr<Kernel>> fused_kernel(Workshop& workshop, native::Call& call,
                                                   int32_t stream);
// Of an instruction whose operator expressions may have (native::is_operation).
base::Result<std::unique_ptr<Kernel>> operator_kernel(Workshop& workshop,
                                                      const plan::Instruction& instruction,
                                                      const AddressMap& addresses);
// Copies a tensor, which broadcasts to the other, to that; both are of one type.
base::Result<std::unique_ptr<Kernel>> copy_kernel(Workshop& workshop, const BoundTensor& from,
                                                  const BoundTensor& to);
// dc.cast between different types, dc.accumulate.
base::Result<std::unique_ptr<Kernel>> cast_kernel(Workshop& workshop, native::Call& call);
base::Result<std::unique_ptr<Kernel>> accumulate_kernel(Workshop& workshop, native::Call& call);

}  // namespace dc::runtime::kernel::cuda
