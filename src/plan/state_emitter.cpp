#include "src/plan/state_emitter.h"

#include <algorithm>

namespace dc::plan {
namespace {

namespace rp = runtime::plan;
using ir::StateRole;

// The rank's range of another entry is a flat shard of it along the axes of its ranges, whatever
// its type says. Each rank draws its own random numbers and sums the losses of its own data.
ir::AxisPlacement placed_on(const ir::StateEntry& entry, size_t axis) {
  if (entry.range_of >= 0) {
    const bool is_split = (ir::range_axes(entry) >> axis & 1) != 0;
    return is_split ? ir::AxisPlacement::FlatShard : ir::AxisPlacement::Replicated;
  }
  if (entry.role == StateRole::Random || entry.role == StateRole::LossSum)
    return ir::AxisPlacement::Varying;
  return entry.type.sharding[axis].placement;
}

std::vector<rp::PlacedAxis> placement(const ir::Step& step, const ir::StateEntry& entry) {
  std::vector<rp::PlacedAxis> axes;
  for (size_t a = 0; a < std::min(step.mesh.axes.size(), ir::kMaxAxes); ++a) {
    const ir::AxisPlacement placed = placed_on(entry, a);
    if (placed == ir::AxisPlacement::Replicated) continue;
    rp::PlacedAxis to{static_cast<int32_t>(a), placed};
    if (placed == ir::AxisPlacement::Shard) to.dim = int32_t{entry.type.sharding[a].dim};
    if (placed == ir::AxisPlacement::FlatShard) to.shard = entry.type.numel();
    axes.push_back(to);
  }
  return axes;
}

// What a state entry holds before step 1.
void add_source(const ir::Step& step, const ir::StateEntry& from, rp::StateEntry& to) {
  switch (from.role) {
    case StateRole::Parameter:
    case StateRole::Shard:
    case StateRole::Master:
      to.source = ir::is_flat_shard(from.type) ? rp::StateSource::ParameterShard
                                               : rp::StateSource::ParameterWhole;
      return;
    case StateRole::Moment1:
    case StateRole::Moment2:
    case StateRole::Momentum:
    case StateRole::Accumulator:
    case StateRole::Carried:
    case StateRole::NormTable:
    case StateRole::LossSum:
    case StateRole::Losses:
    case StateRole::Unknown:
      to.source = rp::StateSource::Zeros;
      return;
    case StateRole::Buffer:
    case StateRole::Constant: {
      const ir::Buffer& buffer = step.buffers[static_cast<size_t>(from.buffer)];
      // A persistent one has its value in the weights, also where the archive has none.
      const bool in_plan = !buffer.data.empty() || (buffer.is_constant && !buffer.persistent &&
                                                    buffer.record.entry.empty());
      to.source = in_plan ? rp::StateSource::Data : rp::StateSource::Buffer;
      if (in_plan) to.data = buffer.data;
      return;
    }
    case StateRole::Hyperparameters:
    case StateRole::Random:
    case StateRole::Scalars:
      to.source = rp::StateSource::Runtime;
      return;
  }
}

}  // namespace

uint32_t plan_axes(const ir::Mesh& mesh, ir::AxisMask axes) {
  return mesh.is_world(axes) ? rp::kAllAxes : axes;
}

rp::StateEntry emit_state_entry(const ir::Step& step, const ir::StateEntry& entry) {
  rp::StateEntry to;
  to.name = entry.name;
  to.role = entry.role;
  to.parameter = entry.parameter;
  to.buffer = entry.buffer;
  to.placement = placement(step, entry);
  to.range_of = entry.range_of;
  add_source(step, entry, to);
  return to;
}

}  // namespace dc::plan
