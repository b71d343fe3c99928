// Descent: from the best schedule so far to its neighbours, chains that differ in one decision.
//
// A change stays if the simulated step gets shorter. Where none does, the search goes on from the
// next best schedules, as long as these are near the best: a best-first search with bounded
// backtracking, as DisCo's (arXiv 2209.12769, section 4.3).
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/search/search_state.h"

namespace dc::search {

class Descent {
 public:
  // The reference must outlive it.
  explicit Descent(SearchState& state);

  // Until the effort ends, the bound is reached, or nothing near is left.
  base::Status run();
  // Then from the best of those that use memory in the other ways (Keeping) where it is near the
  // best, without leaving that way: what a decision made worse, others may make up for. `effort`:
  // for all of them, as Trials counts it.
  base::Status run_otherwise(int effort);
  // Then, without a budget, from the best with all parameters whole through all micro-batches and
  // nothing made again: single steps are a long way there. `effort`: for it, as Trials counts it.
  base::Status run_whole(int effort);
  // The schedule made by passes that plan for less: what passes make of a budget is not smooth, and
  // less may be more.
  base::Status plan_for_less(const Candidate& from);

 private:
  base::Status run_within(Keeping keeping, int effort);
  base::Status run_apart(const Candidate& from, int effort);
  base::Status make_faster_ones_fit();
  base::Status recompute_otherwise(int step);
  base::Status keep_through_micro_batches();
  base::Result<bool> change_decisions();
  base::Status expand(const Candidate& from);
  // As SearchState::try_next(), of a chain that differs from that of `from` in one decision.
  base::Status try_change(const Candidate& from, const passes::Chain& other);
  // Chains that differ in one decision only: number `decision` of decisions().
  std::vector<passes::Chain> changes(const passes::Chain& chain, size_t decision) const;
  // Whether what memory buys is decided jointly, each pass, how collectives are grouped, and how
  // operators are fused.
  size_t decisions() const { return 3 + passes_.size(); }

  SearchState& state_;
  const std::vector<const passes::Pass*> passes_;  // that may be added, dropped or resized
  std::optional<Keeping> within_;                  // the only way to use memory
  int far_ = 0;             // schedules that were not near the best and led on
  bool was_whole_ = false;  // what is whole through all micro-batches was changed in large steps
  std::set<std::string> slower_;  // changes that made a schedule slower, by more than a little
};

}  // namespace dc::search
