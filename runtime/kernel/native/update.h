// The operands of updates, checked: kernels of CPUs and of GPUs read them alike.
#pragma once

#include "runtime/kernel/native/call.h"
#include "runtime/kernel/scalar/update.h"

namespace dc::runtime::kernel::native {

struct ControlOperands {
  Dense scalars, hyperparameters;
  int64_t param, group;
  bool clip;

  // At the addresses of the device.
  scalar::UpdateControl at() const {
    return {static_cast<const double*>(scalars.data),
            static_cast<const double*>(hyperparameters.data), param, group, clip};
  }
  // Where the host's cores find them.
  scalar::UpdateControl on(const device::Stream& stream) const {
    return {scalars.on<const double>(stream), hyperparameters.on<const double>(stream), param,
            group, clip};
  }
};

// A gradient `g` is of any floating type. `copy`, of p in another floating type, has no data where
// there is none.
struct AdamWOperands {
  Dense p, m, v, g, copy;
  ControlOperands control;
};
AdamWOperands read_adamw(Call& call);

struct SgdOperands {
  Dense p, buffer, g, copy;
  ControlOperands control;
  bool momentum, nesterov;
};
SgdOperands read_sgd(Call& call);

}  // namespace dc::runtime::kernel::native
