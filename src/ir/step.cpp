#include "src/ir/step.h"

namespace dc::ir {

int64_t Parameter::numel() const { return base::numel(shape); }

AxisMask range_axes(const StateEntry& entry) {
  return is_flat_shard(entry.type) ? axes_with(entry.type, AxisPlacement::FlatShard) : kAllAxes;
}

void StateTable::push_back(StateEntry entry) {
  if (find(entry.name) < 0) by_name_.insert(entry.name, static_cast<int32_t>(entries_.size()), 1);
  entries_.edit().push_back(std::move(entry));
}

int StateTable::find(std::string_view name) const {
  const NameTable::Entry* entry = by_name_.find(name, [this](int32_t row) -> const std::string& {
    return entries_[static_cast<size_t>(row)].name;
  });
  return entry == nullptr ? -1 : entry->row;
}

}  // namespace dc::ir
