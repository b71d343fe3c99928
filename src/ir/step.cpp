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

int Step::find_state(std::string_view name) const {
  for (size_t i = 0; i < state.size(); ++i) {
    if (state[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace dc::ir
