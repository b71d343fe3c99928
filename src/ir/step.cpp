#include "src/ir/step.h"

namespace dc::ir {

int64_t Parameter::numel() const {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

int64_t Step::arena(Space space) const {
  switch (space) {
    case Space::Device:
      return arena_bytes;
    case Space::Host:
      return host_arena_bytes;
    case Space::Disk:
      return disk_arena_bytes;
  }
  return 0;
}

int Step::find_state(std::string_view name) const {
  for (size_t i = 0; i < state.size(); ++i) {
    if (state[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace dc::ir
