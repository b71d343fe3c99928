#include "src/ir/step.h"

namespace dc::ir {

int64_t Parameter::numel() const { return base::numel(shape); }

AxisMask range_axes(const StateEntry& entry) {
  return is_flat_shard(entry.type) ? axes_with(entry.type, AxisPlacement::FlatShard) : kAllAxes;
}

void StateTable::push_back(StateEntry entry) {
  by_name_.emplace(entry.name, static_cast<int>(entries_.size()));
  entries_.push_back(std::move(entry));
}

int StateTable::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? -1 : found->second;
}

}  // namespace dc::ir
