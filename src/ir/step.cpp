#include "src/ir/step.h"

namespace dc::ir {

int64_t Parameter::numel() const {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

namespace {

template <typename AnyStep>
auto& arena_of(AnyStep& step, Space space) {
  switch (space) {
    case Space::Device:
      break;
    case Space::Host:
      return step.host_arena_bytes;
    case Space::Disk:
      return step.disk_arena_bytes;
  }
  return step.arena_bytes;
}

}  // namespace

int64_t Step::arena(Space space) const { return arena_of(*this, space); }
int64_t& Step::arena(Space space) { return arena_of(*this, space); }

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
