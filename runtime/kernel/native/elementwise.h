// The operands of accumulate, checked: kernels of CPUs and of GPUs read them alike.
#pragma once

#include "runtime/kernel/native/call.h"

namespace dc::runtime::kernel::native {

struct AccumulateOperands {
  Dense sum, g;
};
AccumulateOperands read_accumulate(Call& call);

}  // namespace dc::runtime::kernel::native
