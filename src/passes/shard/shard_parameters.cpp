// shard-parameters: ZeRO as placements. Each parameter, its gradient and its optimizer state get a
// place; state entries are created for them, and the step is split into [accumulate x (GA - 1),
// step].
//
// ZeRO 0 = resident / whole / replicated, 1 = resident / whole / sharded, 2 = resident / sharded /
// sharded, 3 = gathered per use / sharded / sharded; Options::reduction_order replaces the gradient
// part.
#include "src/base/text.h"
#include "src/passes/pass.h"
#include "src/passes/shard/shard_elements.h"
#include "src/schedule/state_values.h"

namespace dc::passes {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

void place(ir::Parameter& parameter, int stage, const Options& options, const ir::Mesh& mesh) {
  using P = ir::ParameterPlacement;
  using G = ir::GradientPlacement;
  using S = ir::StatePlacement;
  const int zero = mesh.world() == 1 ? 0 : stage;
  const bool once = options.reduction_order == ReductionOrder::ByStage
                        ? stage < 2
                        : options.reduction_order == ReductionOrder::PerStep;
  parameter.placement = zero == 3 ? P::GatheredPerUse : P::Resident;
  parameter.gradient = once ? G::WholeUntilLast : G::ShardedEachMicroBatch;
  parameter.state = zero == 0 ? S::Replicated : S::Sharded;
  parameter.shard = shard_elements(parameter.numel(), mesh.size(mesh.shard_axes()));
}

class StateBuilder {
 public:
  explicit StateBuilder(ir::Step& step)
      : step_(step), split_(step.mesh.shard_axes()), shards_(step.mesh.size(split_)) {}

  // The imported step has one entry per parameter; it becomes the resident value or the shard.
  void convert_parameter(int entry_index) {
    ir::StateEntry& entry = step_.state.edit(static_cast<size_t>(entry_index));
    const int index = entry.parameter;
    const ir::Parameter& parameter = step_.parameters[static_cast<size_t>(index)];
    if (parameter.placement == ir::ParameterPlacement::Resident) {
      entry.storage_elements = parameter.shard * shards_;
    } else {
      entry.role = ir::StateRole::Shard;  // keeps its whole type until insert-collectives has
                                          // rewritten the readers
    }
    if (!parameter.trainable) return;
    const bool sharded = parameter.state == ir::StatePlacement::Sharded;
    if (sharded && parameter.placement == ir::ParameterPlacement::Resident) {
      add("shard", ir::StateRole::Shard, index, shard_type(parameter, parameter.dtype),
          entry_index);
    }
    const ir::TensorType state_type = sharded ? shard_type(parameter, ir::DType::F32)
                                              : ir::contiguous(ir::DType::F32, parameter.shape);
    if (parameter.dtype != ir::DType::F32) add("master", ir::StateRole::Master, index, state_type);
    add_moments(index, state_type);
    if (step_.accumulation > 1) add_accumulator(index, parameter);
  }

 private:
  ir::TensorType shard_type(const ir::Parameter& parameter, ir::DType dtype) const {
    return ir::contiguous(dtype, {parameter.shard},
                          ir::sharding_along(split_, ir::AxisPlacement::FlatShard));
  }

  void add_moments(int index, const ir::TensorType& type) {
    const ir::Optimizer& optimizer = step_.optimizer;
    const ir::Parameter& parameter = step_.parameters[static_cast<size_t>(index)];
    switch (optimizer.kind) {
      case ir::OptimizerKind::AdamW:
        add("exp_avg", ir::StateRole::Moment1, index, type);
        add("exp_avg_sq", ir::StateRole::Moment2, index, type);
        return;
      case ir::OptimizerKind::Sgd:
        if (optimizer.groups[static_cast<size_t>(parameter.group)].momentum != 0) {
          add("momentum", ir::StateRole::Momentum, index, type);
        }
        return;
    }
  }

  void add_accumulator(int index, const ir::Parameter& parameter) {
    const bool alone = step_.mesh.world() == 1;
    const bool whole = parameter.gradient == ir::GradientPlacement::WholeUntilLast || alone;
    ir::TensorType type = whole ? ir::contiguous(ir::DType::F32, parameter.shape)
                                : shard_type(parameter, ir::DType::F32);
    // What a rank holds is one summand along the axes that are not reduced until the last.
    for (size_t axis = 0; axis < step_.mesh.axes.size() && !alone; ++axis) {
      if (whole || (split_ >> axis & 1) == 0)
        type.sharding[axis].placement = ir::AxisPlacement::Partial;
    }
    add("gradient", ir::StateRole::Accumulator, index, type);
  }

  void add(const char* prefix, ir::StateRole role, int parameter, const ir::TensorType& type,
           int range_of = -1) {
    ir::StateEntry entry;
    entry.name = std::string(prefix) + "." + step_.parameters[static_cast<size_t>(parameter)].fqn;
    entry.role = role;
    entry.parameter = parameter;
    entry.type = type;
    entry.range_of = range_of;
    schedule::add_entry(step_, std::move(entry));
  }

  ir::Step& step_;
  ir::AxisMask split_;  // along which shards are spread
  int shards_;
};

void assign_groups(ir::Step& step) {
  for (ir::Parameter& parameter : step.parameters.edit()) {
    parameter.group = 0;
    for (size_t g = 1; g < step.optimizer.groups.size(); ++g) {
      if (!base::glob_match(step.optimizer.groups[g].match, parameter.fqn)) continue;
      parameter.group = static_cast<int>(g);
      break;
    }
  }
}

void split_programs(ir::Step& step) {
  if (step.accumulation == 1 || step.programs.size() > 1) return;
  ir::Program accumulate{step.programs[0].graph, step.accumulation - 1};
  accumulate.graph.set_name("accumulate");
  step.programs.insert(step.programs.begin(), std::move(accumulate));
}

}  // namespace

Result<Change> shard_parameters(ir::Step& step, const PassContext& context) {
  for (const ir::Parameter& parameter : step.parameters) {
    if (parameter.shard > 0) return Change::No;  // placed already
  }
  const int64_t stage = context.argument.value_or(3);
  if (stage > 3) {
    return Status(ErrorKind::Usage, "DC2607",
                  "shard-parameters takes a ZeRO stage, 0 to 3, not " + std::to_string(stage));
  }
  assign_groups(step);
  for (ir::Parameter& parameter : step.parameters.edit())
    place(parameter, static_cast<int>(stage), context.options, step.mesh);
  StateBuilder builder(step);
  const int imported = static_cast<int>(step.state.size());
  for (int i = 0; i < imported; ++i) {
    const ir::StateEntry& entry = step.state[static_cast<size_t>(i)];
    if (entry.role != ir::StateRole::Parameter) continue;
    if (!entry.type.is_contiguous()) {
      return Status(ErrorKind::Unsupported, "DC2605",
                    "parameter " + step.parameters[static_cast<size_t>(entry.parameter)].fqn +
                        " is not contiguous; store it with .contiguous() before exporting");
    }
    builder.convert_parameter(i);
  }
  step.programs.back().graph.set_name("step");
  split_programs(step);
  return Change::Yes;
}

}  // namespace dc::passes
