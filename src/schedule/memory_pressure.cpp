#include "src/schedule/memory_pressure.h"

#include <algorithm>
#include <bit>

namespace dc::schedule {
namespace {

constexpr size_t kBits = 64;  // of a word of OneProgram::over
constexpr int64_t kGivenUp = int64_t{1} << 60;

}  // namespace

MemoryPressure::MemoryPressure(const ir::Step& step, const cost::CostModel& cost,
                               base::Bytes budget)
    : budget_(budget.v), state_(analysis::state_bytes(step, ir::Space::Device).v) {
  for (const ir::Program& program : step.programs) {
    OneProgram& one = programs_.emplace_back();
    one.axis = std::make_shared<const TimeAxis>(step, program.graph, cost);
    one.bytes = one.axis->bytes;
    const size_t count = one.bytes.size();
    one.discount.resize(count);
    one.over.resize(count / kBits + 1);
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
    const size_t count = one.bytes.size();
    for (size_t word = 0; word < one.over.size(); ++word) {
      const size_t begin = word * kBits, end = std::min(count, begin + kBits);
      uint64_t over = 0;
      int64_t counted = INT64_MIN;
      for (size_t i = begin; i < end; ++i) {
        over |= static_cast<uint64_t>(one.bytes[i] > limit) << (i - begin);
        counted = std::max(counted, one.bytes[i] - one.discount[i]);
      }
      one.over[word] = over;
      if (counted <= most) continue;
      most = counted;
      size_t i = begin;
      while (one.bytes[i] - one.discount[i] != counted) ++i;
      found = {static_cast<int>(p), static_cast<int32_t>(i)};
    }
  }
  return found;
}

std::optional<MemoryPressure::Spot> MemoryPressure::give_up(Spot spot) {
  if (above_.empty()) find_above();
  programs_[static_cast<size_t>(spot.program)].discount[static_cast<size_t>(spot.position)] =
      kGivenUp;
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
      if (one.bytes[i] > limit && one.discount[i] == 0)
        above_.push_back({one.bytes[i], {static_cast<int>(p), static_cast<int32_t>(i)}});
    }
  }
  std::make_heap(above_.begin(), above_.end());
}

int32_t MemoryPressure::first_over(int program, int32_t from, int32_t to) const {
  if (from >= to) return to;
  const std::vector<uint64_t>& over = programs_[static_cast<size_t>(program)].over;
  const auto first = static_cast<size_t>(from);
  size_t word = first / kBits;
  uint64_t bits = over[word] & ~uint64_t{0} << first % kBits;
  const size_t last = static_cast<size_t>(to - 1) / kBits;
  while (bits == 0 && word < last) bits = over[++word];
  if (bits == 0) return to;
  return std::min(to, static_cast<int32_t>(word * kBits) + std::countr_zero(bits));
}

int32_t MemoryPressure::after_last_over(int program, int32_t from, int32_t to) const {
  if (from >= to) return from;
  const std::vector<uint64_t>& over = programs_[static_cast<size_t>(program)].over;
  const auto last = static_cast<size_t>(to - 1);
  size_t word = last / kBits;
  uint64_t bits = over[word] & ~uint64_t{0} >> (kBits - 1 - last % kBits);
  const size_t first = static_cast<size_t>(from) / kBits;
  while (bits == 0 && word > first) bits = over[--word];
  if (bits == 0) return from;
  return std::max(from, static_cast<int32_t>((word + 1) * kBits) - std::countl_zero(bits));
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
