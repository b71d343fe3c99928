// Head: a parameter whose gather nearly all of a step has to wait for. Until its first gather has
// ended nothing runs that depends on it, so that time comes on top of the kernels'.
#pragma once

#include <optional>
#include <span>

#include "src/bound/program_view.h"
#include "src/bound/step_work.h"

namespace dc::bound {

struct Head {
  int parameter = -1;
  double others_ns = 0;  // kernels of the model that do not depend on it, in the first micro-batch
};

// The one of the first few gathered parameters of the first program for which the gather takes most
// time more than the kernels that need not wait for it. None: no gather is worth it.
std::optional<Head> find_head(const ProgramView& first, const StepWork& work,
                              const cost::CostModel& cost);

}  // namespace dc::bound
