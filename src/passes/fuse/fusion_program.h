// One program of a scheduled step as a problem of fusion (src/fusion).
#pragma once

#include <optional>
#include <vector>

#include "src/cost/cost_model.h"
#include "src/fusion/problem.h"
#include "src/fusion/timeline.h"
#include "src/ir/step.h"

namespace dc::passes {

struct FusionProgram {
  fusion::Problem problem;
  std::vector<ir::NodeId> kernels;     // by the problem's number
  std::vector<ir::NodeId> reductions;  // starts
  std::vector<int32_t> fusible;        // numbers of kernels of a kind
};

// What may be fused.
// InPlans: what a fused kernel of a plan can run: is_fusible(), of one shape, none that reads
// another's value through a view.
// AnyOperator: every operator of the model, as DisCo takes it, to simulate alone.
enum class Fusible : uint8_t { InPlans, AnyOperator };

// Kernels that no reduction comes before, and the reductions that none comes before; of the others
// only that they read something. Reductions are of one kind if they can travel together; those that
// already do are of none other's. Nothing if parameters are gathered, or values copied, among these
// kernels.
std::optional<FusionProgram> fusion_program(const ir::Step& step, const ir::Graph& graph,
                                            const cost::CostModel& cost,
                                            Fusible fusible = Fusible::InPlans);

// By linear regression over the model's figures for the program's reductions.
fusion::LinearTime reduction_line(const ir::Step& step, const ir::Graph& graph,
                                  const FusionProgram& program, const cost::CostModel& cost);

}  // namespace dc::passes
