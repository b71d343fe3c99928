// KnownRecompute: what the pass recompute has to find out about one scheduled step whatever it may
// take. A search asks the pass about the same step under many limits.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "src/passes/recompute/recompute_choice.h"

namespace dc::passes {

class KnownRecompute {
 public:
  // Of the step and its copies. The step must not change while this is in use. `whole`: the budget
  // of a search, whose chains may plan for less.
  KnownRecompute(const ir::Step& step, const cost::CostModel& cost, int64_t whole = INT64_MAX);
  KnownRecompute(const KnownRecompute&) = delete;
  KnownRecompute& operator=(const KnownRecompute&) = delete;

  const std::deque<RecomputeProgram>& programs() const { return programs_; }
  // By program, with as much freed as possible: the choice under the limit 0.
  const std::vector<RecomputeChoice>& lowest();
  // By program, with only the inputs of blocks kept.
  const std::vector<RecomputeChoice>& block_inputs();
  // Transients and scratch at the worst place of any program, with all kept.
  int64_t most_bytes();
  // Nothing was found that keeps this budget. If it is the whole one or more, nothing is looked for
  // under less: a search asks for less time and again, and no such step is its result.
  void refuse(int64_t budget) { is_refused_ = is_refused_ || budget >= whole_; }
  bool is_refused(int64_t budget) const { return is_refused_ && budget <= whole_; }

 private:
  std::deque<RecomputeProgram> programs_;
  std::vector<RecomputeChoice> lowest_, block_inputs_;  // empty: not asked for yet
  std::optional<int64_t> most_bytes_;
  int64_t whole_;
  bool is_refused_ = false;
};

}  // namespace dc::passes
