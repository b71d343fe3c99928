// MemoryPressure: the bytes at every position of every program against the device's budget, while
// an offload pass decides what leaves the device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "src/schedule/time_axis.h"

namespace dc::schedule {

class MemoryPressure {
 public:
  // The step must not change as long as this, or a copy of it, is used.
  MemoryPressure(const ir::Step& step, const cost::CostModel& cost, base::Bytes budget);

  // The same bytes against another budget. What passes look up about the programs is shared.
  MemoryPressure within(base::Bytes budget) const;

  struct Spot {
    int program = 0;
    int32_t position = 0;
  };
  // Looks anew, where anything has changed: the first of those that are furthest above the budget,
  // without the ones given up.
  std::optional<Spot> survey();
  // Of the last survey, with nothing added since: that spot no longer counts. Returns what a survey
  // would find now, in O(log positions).
  std::optional<Spot> give_up(Spot spot);
  bool has_given_up() const { return has_given_up_; }
  // As the last survey saw it: the first position in [from, to) that is above the budget, or `to`;
  // the one after the last such position, or `from`.
  int32_t first_over(int program, int32_t from, int32_t to) const;
  int32_t after_last_over(int program, int32_t from, int32_t to) const;

  // Bytes that may still be added at a position; negative above the budget.
  int64_t room(int program, int32_t position) const;
  // Of all positions from `first` to `last`, both included; of none: INT64_MAX.
  int64_t least_room(int program, int32_t first, int32_t last) const;
  void add(int program, int32_t first, int32_t last, int64_t bytes);  // transients; may be negative
  void add_to_state(int64_t bytes) { state_ += bytes; }
  // Alive at a position, state included.
  int64_t bytes(int program, int32_t position) const {
    return state_ + programs_[static_cast<size_t>(program)].bytes[static_cast<size_t>(position)];
  }
  // At the position of any program where most are.
  base::Bytes most_bytes() const;

  // Its bytes are those before anything left.
  const TimeAxis& axis(int program) const { return *programs_[static_cast<size_t>(program)].axis; }
  int programs() const { return static_cast<int>(programs_.size()); }
  int32_t positions(int program) const {
    return static_cast<int32_t>(axis(program).live.order.size());
  }
  base::Nanos time(int program, int32_t position) const {
    return axis(program).time_before(position);
  }

 private:
  struct OneProgram {
    std::shared_ptr<const TimeAxis> axis;
    std::vector<int64_t> bytes;  // by position, now: of transients and scratch on the device
    // By position: more than any number of bytes where it is given up, else 0.
    std::vector<int64_t> discount;
    std::vector<uint64_t> over;  // by position, a bit each: above the budget at the last survey
    std::vector<uint64_t> any;   // by word of `over`, a bit each: not 0
    std::vector<int64_t> most;   // by word of `over`: bytes less the discount, at the last survey
    size_t changed_begin = 0, changed_end = 0;  // words with all changes since, and some without
  };
  // A position above the limit that has not been given up, by bytes, then program and position.
  struct Above {
    int64_t bytes;
    Spot spot;
    bool operator<(const Above& other) const {
      if (bytes != other.bytes) return bytes < other.bytes;
      if (spot.program != other.spot.program) return spot.program > other.spot.program;
      return spot.position > other.spot.position;
    }
  };
  void find_above();
  static void look_again(OneProgram& one, int64_t limit);
  static void note_change(OneProgram& one, int32_t first, int32_t last);
  int64_t limit() const { return live_limit(budget_ - state_); }

  int64_t budget_, state_;
  std::vector<OneProgram> programs_;
  std::optional<int64_t> surveyed_;  // the limit then
  bool has_given_up_ = false;
  // A heap, made by the first give_up() after a survey; empty before. The largest is the spot that
  // was returned last.
  std::vector<Above> above_;
};

}  // namespace dc::schedule
