#include "runtime/plan/state_entries.h"

#include <algorithm>

#include "runtime/plan/mesh.h"

namespace dc::runtime::plan {

ElementRange shard_range(int64_t elements, int64_t shard, int64_t place) {
  const int64_t first = std::min(elements, place * shard);
  return {first, std::min(elements, first + shard) - first};
}

int64_t flat_shard(const StateEntry& entry) {
  for (const PlacedAxis& p : entry.placement) {
    if (p.placement == AxisPlacement::FlatShard) return p.shard;
  }
  return 0;
}

uint32_t shard_axes(const StateEntry& entry) {
  uint32_t axes = 0;
  for (const PlacedAxis& p : entry.placement) {
    if (p.placement == AxisPlacement::FlatShard) axes |= uint32_t{1} << p.axis;
  }
  return axes;
}

ElementRange held_elements(const Plan& plan, const StateEntry& entry, int64_t elements,
                           int32_t rank) {
  const int64_t shard = flat_shard(entry);
  if (shard == 0) return {0, elements};
  return shard_range(elements, shard, index_in_group(plan, shard_axes(entry), rank));
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

uint32_t ParameterStates::shard_axes(const Plan& plan, size_t parameter) const {
  for (const int32_t entry : entries_[parameter]) {
    if (entry < 0) continue;
    const uint32_t axes = plan::shard_axes(plan.state[static_cast<size_t>(entry)]);
    if (axes != 0) return axes;
  }
  return kAllAxes;
}

int32_t ParameterStates::authoritative(size_t parameter) const {
  for (const StateRole role : {StateRole::Master, StateRole::Shard}) {
    if (find(parameter, role) >= 0) return find(parameter, role);
  }
  return find(parameter, StateRole::Parameter);
}

}  // namespace dc::runtime::plan
