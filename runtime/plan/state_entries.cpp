#include "runtime/plan/state_entries.h"

#include <algorithm>

namespace dc::runtime::plan {

bool is_of_parameter(StateRole role) {
  return StateRole::Parameter <= role && role <= StateRole::Carried;
}
bool is_of_buffer(StateRole role) {
  return role == StateRole::Buffer || role == StateRole::Constant;
}

SliceKind slice_kind(StateRole role) {
  switch (role) {
    case StateRole::Parameter:
    case StateRole::Shard:
    case StateRole::Master:
      return SliceKind::Parameters;
    case StateRole::Moment1:
    case StateRole::Moment2:
    case StateRole::Momentum:
      return SliceKind::OptimizerState;
    case StateRole::Accumulator:
      return SliceKind::Gradients;
    case StateRole::Carried:
      return SliceKind::Gathered;
    case StateRole::Buffer:
    case StateRole::Constant:
      return SliceKind::Buffers;
    case StateRole::Unknown:
    case StateRole::Hyperparameters:
    case StateRole::Random:
    case StateRole::Scalars:
    case StateRole::NormTable:
    case StateRole::LossSum:
    case StateRole::Losses:
      return SliceKind::Scalars;
  }
  return SliceKind::Scalars;
}

int64_t flat_shard(const StateEntry& entry) {
  for (const AxisPlacement& p : entry.placement) {
    if (p.spread == Spread::FlatShard) return p.shard;
  }
  return 0;
}

ElementRange held_elements(const Plan& plan, const StateEntry& entry, int64_t elements,
                           int32_t rank) {
  for (const AxisPlacement& p : entry.placement) {
    if (p.spread != Spread::FlatShard) continue;
    int64_t inner = 1;  // ranks per coordinate of this axis
    for (size_t a = static_cast<size_t>(p.axis) + 1; a < plan.mesh.size(); ++a) {
      inner *= plan.mesh[a].second;
    }
    const int64_t coordinate = rank / inner % plan.mesh[static_cast<size_t>(p.axis)].second;
    const int64_t first = std::min(elements, coordinate * p.shard);
    return {first, std::min(elements, first + p.shard) - first};
  }
  return {0, elements};
}

ParameterStates::ParameterStates(const Plan& plan) : entries_(plan.parameters.size()) {
  for (auto& roles : entries_) roles.fill(-1);
  for (size_t i = 0; i < plan.state.size(); ++i) {
    const StateEntry& entry = plan.state[i];
    if (entry.parameter < 0) continue;
    entries_[static_cast<size_t>(entry.parameter)][static_cast<size_t>(entry.role)] =
        static_cast<int32_t>(i);
  }
}

int32_t ParameterStates::authoritative(size_t parameter) const {
  for (const StateRole role : {StateRole::Master, StateRole::Shard}) {
    if (find(parameter, role) >= 0) return find(parameter, role);
  }
  return find(parameter, StateRole::Parameter);
}

}  // namespace dc::runtime::plan
