// The operands of dropout, checked: kernels of CPUs and of GPUs read them alike.
#pragma once

#include "runtime/kernel/native/call.h"
#include "runtime/kernel/scalar/dropout.h"

namespace dc::runtime::kernel::native {

struct DropoutOperands {
  Dense x, rng, y, mask;  // the mask has no data where it is not wanted
  uint32_t op = 0, threshold = 0;
  float scale = 0;
};
DropoutOperands read_dropout(Call& call);

}  // namespace dc::runtime::kernel::native
