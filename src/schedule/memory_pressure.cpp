#include "src/schedule/memory_pressure.h"

#include <algorithm>

namespace dc::schedule {

MemoryPressure::MemoryPressure(const ir::Step& step, const cost::CostModel& cost,
                               base::Bytes budget)
    : budget_(budget.v), state_(analysis::state_bytes(step, ir::Space::Device).v) {
  for (const ir::Program& program : step.programs) {
    OneProgram& one = programs_.emplace_back();
    one.axis = std::make_shared<const TimeAxis>(step, program.graph, cost);
    one.bytes = one.axis->bytes;
    const size_t count = one.bytes.size();
    one.given_up.resize(count);
    one.next_over.resize(count + 1, static_cast<int32_t>(count));
    one.past_over.resize(count + 1);
  }
}

MemoryPressure MemoryPressure::within(base::Bytes budget) const {
  MemoryPressure other = *this;
  other.budget_ = budget.v;
  return other;
}

base::Bytes MemoryPressure::most_bytes() const {
  int64_t most = 0;
  for (const OneProgram& one : programs_) {
    for (const int64_t bytes : one.bytes) most = std::max(most, bytes);
  }
  return base::Bytes{state_ + most};
}

std::optional<MemoryPressure::Spot> MemoryPressure::survey() {
  above_.clear();
  std::optional<Spot> found;
  const int64_t limit = this->limit();
  int64_t most = limit;
  for (size_t p = 0; p < programs_.size(); ++p) {
    OneProgram& one = programs_[p];
    const std::vector<int64_t>& bytes = one.bytes;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const bool over = bytes[i] > limit;
      one.past_over[i + 1] = over ? static_cast<int32_t>(i) + 1 : one.past_over[i];
      if (bytes[i] <= most || one.given_up[i]) continue;
      most = bytes[i];
      found = {static_cast<int>(p), static_cast<int32_t>(i)};
    }
    for (size_t i = bytes.size(); i-- > 0;)
      one.next_over[i] = bytes[i] > limit ? static_cast<int32_t>(i) : one.next_over[i + 1];
  }
  return found;
}

std::optional<MemoryPressure::Spot> MemoryPressure::give_up(Spot spot) {
  if (above_.empty()) find_above();
  programs_[static_cast<size_t>(spot.program)].given_up[static_cast<size_t>(spot.position)] = true;
  has_given_up_ = true;
  std::pop_heap(above_.begin(), above_.end());
  above_.pop_back();
  return above_.empty() ? std::nullopt : std::optional<Spot>(above_.front().spot);
}

void MemoryPressure::find_above() {
  const int64_t limit = this->limit();
  for (size_t p = 0; p < programs_.size(); ++p) {
    const OneProgram& one = programs_[p];
    for (size_t i = 0; i < one.bytes.size(); ++i) {
      if (one.bytes[i] > limit && !one.given_up[i])
        above_.push_back({one.bytes[i], {static_cast<int>(p), static_cast<int32_t>(i)}});
    }
  }
  std::make_heap(above_.begin(), above_.end());
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
  return limit() - programs_[static_cast<size_t>(program)].bytes[static_cast<size_t>(position)];
}

int64_t MemoryPressure::least_room(int program, int32_t first, int32_t last) const {
  if (first > last) return INT64_MAX;
  const std::vector<int64_t>& bytes = programs_[static_cast<size_t>(program)].bytes;
  return limit() - *std::max_element(bytes.begin() + first, bytes.begin() + last + 1);
}

void MemoryPressure::add(int program, int32_t first, int32_t last, int64_t bytes) {
  std::vector<int64_t>& curve = programs_[static_cast<size_t>(program)].bytes;
  for (int32_t i = first; i <= last; ++i) curve[static_cast<size_t>(i)] += bytes;
}

}  // namespace dc::schedule
