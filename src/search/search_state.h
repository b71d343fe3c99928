// SearchState: what the parts of one search share: what is asked for, and what was tried.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

#include "src/search/moves.h"
#include "src/search/trials.h"

namespace dc::search {

// What is at most so many per cent of the best's time may lead to a better one.
inline constexpr int64_t kNear = 105;

// Of one chain, by way of fusing; 0: not known.
using FusionTimes = std::array<base::Nanos, std::size(kFusions)>;

class SearchState {
 public:
  // `options`: with one order of reductions. `store`: of these. The references must outlive it.
  SearchState(const ir::Step& imported, const passes::Options& options, const cost::CostModel& cost,
              const SearchOptions& asked, StepStore& store);
  SearchState(const SearchState&) = delete;
  SearchState& operator=(const SearchState&) = delete;

  const ir::Step& imported() const { return imported_; }
  const passes::Options& options() const { return options_; }
  const cost::CostModel& cost() const { return cost_; }
  const SearchOptions& asked() const { return asked_; }
  int64_t parameter_bytes() const { return parameter_bytes_; }

  Trials& trials() { return trials_; }
  const Trials& trials() const { return trials_; }
  const Candidate& best() const { return trials_.best(); }
  const Score& score() const { return trials_.score(); }

  // Ways to fuse operators that may be tried (kFusions): only native kernels are fused.
  const std::vector<size_t>& fusions() const { return fusions_; }
  // Leaves out those that make the same step as another.
  base::Status compare_fusions();
  // The chain with its operators fused in each other way that is not known to be far behind.
  std::vector<passes::Chain> fused_otherwise(const passes::Chain& chain) const;
  // Whether it made little difference to a chain which of these ways its operators are fused in.
  bool are_alike(size_t fusion, size_t other) const;
  // The same of a chain of the search before this one, if take_from_before() was told of one.
  bool were_alike(size_t fusion, size_t other) const;
  // What one chain takes with its operators fused in this way, next to the others.
  void note_fusion(size_t fusion, base::Nanos time) { of_fusion_[fusion] = time; }
  void forget_fusions() { of_fusion_ = {}; }
  const FusionTimes& of_fusion() const { return of_fusion_; }
  void take_from_before(const FusionTimes& of_fusion) { before_ = of_fusion; }
  // The chain, its operators fused in the way that is asked for, if one is.
  base::Result<passes::Chain> as_asked(base::Result<passes::Chain> chain) const;
  bool may_win(const Score& other) const { return !score().fits || other.time < score().time; }
  // Slower than the best by more than what is near it.
  bool is_far(const Score& other) const {
    return score().fits && other.time.v / kNear > score().time.v / 100;
  }
  bool decides_jointly() const { return find_exchanges(best().chain) != nullptr; }
  // Whether exchanges, which decide within one micro-batch, leave it to keep-resident what is whole
  // through all of them.
  bool keeps_through_micro_batches(const passes::Chain& chain) const;
  bool is_enough() const { return trials_.cut_short() || (asked_.first_fit && score().fits); }

  // If it is the first or there is effort left, as Trials::try_candidate().
  base::Result<MaybeScore> try_next(const Candidate& candidate);
  // The chain, planned for all of the budget.
  base::Result<MaybeScore> try_whole(const passes::Chain& chain) {
    return try_next(trials_.whole(chain));
  }

  // Whether the budget asks for more than half of what recomputing can save. Then what is made
  // again is better decided together with what is gathered again.
  base::Result<bool> is_tight(const passes::Chain& chain);
  // Whether the chain makes nothing again, as the budget asks for nothing.
  base::Result<bool> keeps_all(const passes::Chain& chain);
  // Whether the budget may have room for a step of the chain that makes nothing again.
  base::Result<bool> may_keep_all(const passes::Chain& chain);
  // Empty ones where nothing limits the memory, or where the user or exchanges say what is
  // recomputed.
  base::Result<RecomputeMoves> recompute_moves(const passes::Chain& chain);

 private:
  const ir::Step& imported_;
  const passes::Options options_;
  const cost::CostModel& cost_;
  const SearchOptions& asked_;
  const int64_t parameter_bytes_;
  Trials trials_;
  std::vector<size_t> fusions_;
  FusionTimes of_fusion_{}, before_{};
};

}  // namespace dc::search
