// Which state entry is what of a parameter, and which elements of it a rank holds. Said by the
// compiler in roles and placements; nothing is read off names or dtypes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/plan/plan.h"

namespace dc::runtime::plan {

inline constexpr size_t kStateRoles = base::enum_count<StateRole>();

using base::slice_kind;

// A range of the flattened value, in elements. The tensor's element 0 is element `first`; behind
// `count` elements it is padding.
struct ElementRange {
  int64_t first = 0, count = 0;
  bool operator==(const ElementRange&) const = default;
};

// The flat shard at `place` of a value of `elements` elements, cut at the value's end.
ElementRange shard_range(int64_t elements, int64_t shard, int64_t place);

// Elements of one flat shard; 0 if the entry is not placed so.
int64_t flat_shard(const StateEntry& entry);
// The axes along which the entry is cut into flat shards, as a mask: a rank holds the shard of its
// place in the group along them. 0: none.
uint32_t shard_axes(const StateEntry& entry);
// What of a value of `elements` elements the entry holds on `rank`: one flat shard, cut at the
// value's end, or everything. Not for AxisPlacement::Shard.
ElementRange held_elements(const Plan& plan, const StateEntry& entry, int64_t elements,
                           int32_t rank);

// The state entries of each parameter by role. A parameter has at most one of each.
class ParameterStates {
 public:
  explicit ParameterStates(const Plan& plan);

  // Index into Plan::state; -1 if there is none.
  int32_t find(size_t parameter, StateRole role) const {
    return entries_[parameter][static_cast<size_t>(role)];
  }
  // The entry with the authoritative value, which a checkpoint takes: the master if there is one,
  // else the shard (others may hold what was gathered before the last update), else the parameter.
  // -1 only for plans that are not valid.
  int32_t authoritative(size_t parameter) const;
  // The axes along which the parameter's state, and so its gradient, is cut; kAllAxes if none is.
  uint32_t shard_axes(const Plan& plan, size_t parameter) const;
  // Whether the model reads a whole copy that is kept, not gathered for each use.
  bool resident(size_t parameter) const { return find(parameter, StateRole::Parameter) >= 0; }

 private:
  std::vector<std::array<int32_t, kStateRoles>> entries_;  // by parameter
};

}  // namespace dc::runtime::plan
