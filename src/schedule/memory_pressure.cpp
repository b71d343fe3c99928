#include "src/schedule/memory_pressure.h"

#include <algorithm>

namespace dc::schedule {

MemoryPressure::MemoryPressure(const ir::Step& step, const cost::CostModel& cost,
                               base::Bytes budget)
    : budget_(budget.v), state_(analysis::state_bytes(step, ir::Space::Device).v) {
  for (const ir::Program& program : step.programs) {
    programs_.push_back({TimeAxis(step, program.graph, cost), {}, {}, {}});
    OneProgram& one = programs_.back();
    const size_t count = one.axis.bytes.size();
    one.given_up.resize(count);
    one.next_over.resize(count + 1, static_cast<int32_t>(count));
    one.past_over.resize(count + 1);
  }
}

std::optional<MemoryPressure::Spot> MemoryPressure::survey() {
  std::optional<Spot> found;
  int64_t most = limit();
  for (size_t p = 0; p < programs_.size(); ++p) {
    OneProgram& one = programs_[p];
    const std::vector<int64_t>& bytes = one.axis.bytes;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const bool over = bytes[i] > limit();
      one.past_over[i + 1] = over ? static_cast<int32_t>(i) + 1 : one.past_over[i];
      if (bytes[i] <= most || one.given_up[i]) continue;
      most = bytes[i];
      found = {static_cast<int>(p), static_cast<int32_t>(i)};
    }
    for (size_t i = bytes.size(); i-- > 0;)
      one.next_over[i] = bytes[i] > limit() ? static_cast<int32_t>(i) : one.next_over[i + 1];
  }
  return found;
}

void MemoryPressure::give_up(Spot spot) {
  programs_[static_cast<size_t>(spot.program)].given_up[static_cast<size_t>(spot.position)] = true;
  has_given_up_ = true;
}

int32_t MemoryPressure::first_over(int program, int32_t from, int32_t to) const {
  const OneProgram& one = programs_[static_cast<size_t>(program)];
  return std::min(to, one.next_over[static_cast<size_t>(from)]);
}

int32_t MemoryPressure::after_last_over(int program, int32_t from, int32_t to) const {
  const OneProgram& one = programs_[static_cast<size_t>(program)];
  return std::max(from, one.past_over[static_cast<size_t>(to)]);
}

int64_t MemoryPressure::room(int program, int32_t position) const {
  return limit() - axis(program).bytes[static_cast<size_t>(position)];
}

int64_t MemoryPressure::least_room(int program, int32_t first, int32_t last) const {
  int64_t least = INT64_MAX;
  for (int32_t i = first; i <= last; ++i) least = std::min(least, room(program, i));
  return least;
}

void MemoryPressure::add(int program, int32_t first, int32_t last, int64_t bytes) {
  std::vector<int64_t>& curve = programs_[static_cast<size_t>(program)].axis.bytes;
  for (int32_t i = first; i <= last; ++i) curve[static_cast<size_t>(i)] += bytes;
}

}  // namespace dc::schedule
