// The time of a region of a program as the plan's fused kernel, by a cost model.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "src/cost/cost_model.h"
#include "src/fusion/fused_time.h"
#include "src/passes/fuse/fusion_program.h"

namespace dc::passes {

// As the model has measured or learned it; where it has neither, closed_form_time(). All must
// outlive it. Of one thread: what was asked is remembered.
class RegionTime final : public fusion::FusedTime {
 public:
  RegionTime(const ir::Graph& graph, const FusionProgram& program, const cost::CostModel& cost);
  base::Nanos time(const fusion::Region& region) const override;

 private:
  const ir::Graph& graph_;
  const FusionProgram& program_;
  const cost::CostModel& cost_;
  const fusion::ClosedFormTime closed_form_;
  mutable std::unordered_map<uint64_t, base::Nanos> known_;  // by members and results
};

}  // namespace dc::passes
