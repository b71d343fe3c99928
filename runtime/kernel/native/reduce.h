// The operands of what makes the step's scalars, checked: kernels of CPUs and of GPUs read them
// alike.
#pragma once

#include "runtime/kernel/native/call.h"
#include "runtime/kernel/scalar/step_checks.h"

namespace dc::runtime::kernel::native {

struct AddLossOperands {
  Dense sum, loss;
};
AddLossOperands read_add_loss(Call& call);

struct ElementRange {
  int64_t first = 0, count = 0;
};
// `counted` is what the sum is of; in `checked`, which holds it, no element may be infinite or NaN,
// or the sum is neither finite. `g` is of any floating type, and scaled while it is read.
struct SquareSumOperands {
  Dense g, row, hyperparameters;
  ElementRange counted, checked;
  int64_t cell = 0;
};
SquareSumOperands read_square_sum(Call& call);

struct CheckFiniteOperands {
  Dense scalars, row, losses;
  int64_t param = 0;
};
CheckFiniteOperands read_check_finite(Call& call);

struct ClipAndCheckOperands {
  Dense scalars, table, hyperparameters;
  int64_t ranks = 0, parameters = 0;
  bool clip = false;
};
ClipAndCheckOperands read_clip_and_check(Call& call);

}  // namespace dc::runtime::kernel::native
