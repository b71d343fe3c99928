#include "src/schedule/memory_pressure.h"

#include <algorithm>
#include <bit>

namespace dc::schedule {
namespace {

constexpr size_t kBits = 64;  // of a word of OneProgram::over
constexpr int64_t kGivenUp = int64_t{1} << 60;

// The bits of its word from a position on, and up to it.
uint64_t from_on(const std::vector<uint64_t>& words, size_t position) {
  return words[position / kBits] & ~uint64_t{0} << position % kBits;
}
uint64_t up_to(const std::vector<uint64_t>& words, size_t position) {
  return words[position / kBits] & ~uint64_t{0} >> (kBits - 1 - position % kBits);
}

// The first bit from `from` on that is set, and the last up to `from`; -1: none.
int64_t first_set(const std::vector<uint64_t>& words, size_t from) {
  size_t word = from / kBits;
  uint64_t bits = from_on(words, from);
  while (bits == 0 && ++word < words.size()) bits = words[word];
  return bits == 0 ? -1 : static_cast<int64_t>(word * kBits) + std::countr_zero(bits);
}
int64_t last_set(const std::vector<uint64_t>& words, size_t from) {
  size_t word = from / kBits;
  uint64_t bits = up_to(words, from);
  while (bits == 0 && word-- > 0) bits = words[word];
  return bits == 0 ? -1 : static_cast<int64_t>((word + 1) * kBits) - 1 - std::countl_zero(bits);
}

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
    one.any.resize(one.over.size() / kBits + 1);
    one.most.resize(one.over.size());
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
  const int64_t limit = this->limit();
  const bool is_all_new = surveyed_ != limit;
  surveyed_ = limit;
  int64_t most = limit;
  std::optional<Spot> found;
  for (size_t p = 0; p < programs_.size(); ++p) {
    OneProgram& one = programs_[p];
    if (is_all_new) {
      one.changed_begin = 0;
      one.changed_end = one.over.size();
    }
    look_again(one, limit);
    for (size_t word = 0; word < one.most.size(); ++word) {
      if (one.most[word] <= most) continue;
      most = one.most[word];
      found = {static_cast<int>(p), static_cast<int32_t>(word * kBits)};
    }
  }
  if (!found) return found;
  const OneProgram& one = programs_[static_cast<size_t>(found->program)];
  auto i = static_cast<size_t>(found->position);
  while (one.bytes[i] - one.discount[i] != most) ++i;
  found->position = static_cast<int32_t>(i);
  return found;
}

// At the words that changed.
void MemoryPressure::look_again(OneProgram& one, int64_t limit) {
  for (size_t word = one.changed_begin; word < one.changed_end; ++word) {
    const size_t first = word * kBits, last = std::min(one.bytes.size(), first + kBits);
    uint64_t over = 0;
    int64_t most = INT64_MIN;
    for (size_t i = first; i < last; ++i) {
      over |= static_cast<uint64_t>(one.bytes[i] > limit) << (i - first);
      most = std::max(most, one.bytes[i] - one.discount[i]);
    }
    one.over[word] = over;
    const uint64_t bit = uint64_t{1} << word % kBits;
    uint64_t& any = one.any[word / kBits];
    any = over != 0 ? any | bit : any & ~bit;
    one.most[word] = most;
  }
  one.changed_begin = one.changed_end = 0;
}

void MemoryPressure::note_change(OneProgram& one, int32_t first, int32_t last) {
  const size_t begin = static_cast<size_t>(first) / kBits,
               end = static_cast<size_t>(last) / kBits + 1;
  const bool is_first = one.changed_begin == one.changed_end;
  one.changed_begin = is_first ? begin : std::min(one.changed_begin, begin);
  one.changed_end = is_first ? end : std::max(one.changed_end, end);
}

std::optional<MemoryPressure::Spot> MemoryPressure::give_up(Spot spot) {
  if (above_.empty()) find_above();
  OneProgram& one = programs_[static_cast<size_t>(spot.program)];
  one.discount[static_cast<size_t>(spot.position)] = kGivenUp;
  note_change(one, spot.position, spot.position);
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
  const OneProgram& one = programs_[static_cast<size_t>(program)];
  const auto first = static_cast<size_t>(from);
  size_t word = first / kBits;
  uint64_t bits = from_on(one.over, first);
  if (bits == 0) {
    const int64_t next = first_set(one.any, word + 1);
    if (next < 0) return to;
    word = static_cast<size_t>(next);
    bits = one.over[word];
  }
  return std::min(to, static_cast<int32_t>(word * kBits) + std::countr_zero(bits));
}

int32_t MemoryPressure::after_last_over(int program, int32_t from, int32_t to) const {
  if (from >= to) return from;
  const OneProgram& one = programs_[static_cast<size_t>(program)];
  const auto last = static_cast<size_t>(to - 1);
  size_t word = last / kBits;
  uint64_t bits = up_to(one.over, last);
  if (bits == 0) {
    const int64_t before = word > 0 ? last_set(one.any, word - 1) : -1;
    if (before < 0) return from;
    word = static_cast<size_t>(before);
    bits = one.over[word];
  }
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
  if (first > last) return;
  OneProgram& one = programs_[static_cast<size_t>(program)];
  for (int32_t i = first; i <= last; ++i) one.bytes[static_cast<size_t>(i)] += bytes;
  note_change(one, first, last);
}

}  // namespace dc::schedule
