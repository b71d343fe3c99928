// Emission: an allocated step becomes the plan that the runtime replays. Equal steps give equal
// plans.
#pragma once

#include <optional>
#include <string>

#include "runtime/plan/plan.h"
#include "src/base/status.h"
#include "src/cost/cost_model.h"
#include "src/ir/step.h"

namespace dc::plan {

struct EmitOptions {
  int threads = 1;                                     // per rank
  std::string chain;                                   // how the schedule came about: "zero3"
  ir::PerSpace<std::optional<base::Bytes>> budgets{};  // that it kept to
  const ir::Step* evaluation = nullptr;                // lowered over this step's state; null: none
  base::DeviceKind device = base::DeviceKind::Cpu;
};

// Requires stage Allocated. Does not fill: the digests of profile and options, the options' text,
// the compiler's build id, remarks. Of the notes it writes only those on what the cost model
// lacks. Everything else is filled. Internal error, DC8001, naming the node, if the step cannot be
// expressed.
base::Result<runtime::plan::Plan> emit(const ir::Step& step, const EmitOptions& options,
                                       const cost::CostModel& cost);

runtime::plan::Optimizer emit_optimizer(const ir::Optimizer& optimizer);

}  // namespace dc::plan
