// Trials: the schedules that a search has tried. The best of them, those that fit and may lead on,
// and those that need a little too much.
#pragma once

#include <array>
#include <climits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/search/auto.h"
#include "src/search/lower_plans.h"
#include "src/search/moves.h"
#include "src/search/scheduled_steps.h"
#include "src/search/smallest_chain.h"

namespace dc::search {

// What a schedule costs. `fits`: within the budget.
struct Score {
  base::Nanos time, communication;
  int64_t bytes = 0;  // live; of the arena where only that is above the budget
  bool fits = false, is_in_layout = false;  // the latter: the live bytes fit, the addresses do not

  // In the same time (to one part in a thousand) less communication wins, then less memory.
  bool better_than(const Score& other) const;
  bool operator==(const Score&) const = default;
  static bool differ(int64_t a, int64_t b) { return std::abs(a - b) > std::max(a, b) / 1000; }
};
using MaybeScore = std::optional<Score>;

// A schedule that was tried. Without a chain: none.
struct Trial {
  Score score;
  Candidate candidate;
  bool empty() const { return candidate.chain.empty(); }
};

class Trials {
 public:
  // The references must outlive it.
  Trials(const ir::Step& imported, const passes::Options& options, const cost::CostModel& cost,
         const SearchOptions& search, StepStore& store)
      : options_(options),
        search_(search),
        effort_(search.effort * kWorkOfOne),
        steps_(imported, options_, cost, &store),
        smallest_(steps_, cost) {}

  ScheduledSteps& steps() { return steps_; }
  const Candidate& best() const { return best_.candidate; }
  const Score& score() const { return best_.score; }
  // The fastest that keeps the budget's live bytes, of those that use memory in this way.
  const Trial& best_of(Keeping keeping) const { return best_of_[static_cast<size_t>(keeping)]; }
  // Leaves the best aside, as if nothing had been tried; then takes the better of both.
  struct Aside {
    Trial best;
    base::Nanos least;
  };
  Aside set_aside();
  void take_back(const Aside& aside);
  // The fastest that fits, whatever it communicates; taken as the best where that is more than one
  // part in `kEqualParts` slower.
  static constexpr int64_t kEqualParts = 4000;
  const Trial& fastest() const { return fastest_; }
  void take_fastest();
  // Forgets the best, or takes another as it.
  Trial exchange_best(Trial other) { return std::exchange(best_, std::move(other)); }

  // The chain, planned for all of the budget.
  Candidate whole(const passes::Chain& chain) const { return {chain, options_.memory()}; }

  // Takes the candidate as the best if it is. Empty if it is known, if the chain was left out, or
  // if no plan for it can fit.
  base::Result<MaybeScore> try_once(const Candidate& candidate);
  // Empty too where no plan of the chain can fit.
  base::Result<MaybeScore> try_if_it_may_fit(const Candidate& candidate);
  // Then, where only memory keeps it from being the best, by passes that plan for less.
  base::Result<MaybeScore> try_candidate(const Candidate& candidate);
  // `score`: of the candidate, which exceeds the budget. Not tried where no plan of it can fit.
  base::Status plan_for_less(const Candidate& candidate, Score score);
  // The chain's smallest plan, if the budget is large enough.
  base::Status try_smallest(const passes::Chain& chain);
  // The smallest plan of these chains.
  std::optional<SmallestChain> smallest_of(const std::vector<passes::Chain>& chains);
  // Of the chain's latest try. Empty: it made no schedule.
  std::optional<Score> latest(const passes::Chain& chain) const;
  // Those that fit within so many per cent of the fastest, the fastest first; of each chain the
  // latest.
  std::vector<Trial> near_fastest(int64_t percent) const;
  // Whether its addresses keep the budget too, which only of what would be the best is known.
  base::Result<bool> latest_keeps_budget(const passes::Chain& chain);
  // As if the chain had not been tried.
  void forget(const passes::Chain& chain);

  // Efforts are counted in the work of schedules that exchanges or offloading decide, in parts:
  // what other chains make takes less time.
  static constexpr int kWorkOfOne = 8;
  // The effort from here on: parts in all.
  void set_effort(int parts) { effort_ = parts; }
  // No more than so much, whatever effort is set, as soon as something fits.
  void set_limit(int parts) { limit_ = parts; }
  int spent() const { return spent_; }
  // What is left out because it would find nothing new counts as if it was tried.
  void count_as_tried(const passes::Chain& chain);
  // From here on layouts are work too. Not of the starts, all of which are worth a try.
  void count_layouts() { counts_layouts_ = true; }
  void set_bound(base::Nanos bound) { bound_ = bound; }
  // Nothing slower becomes the best within the budget.
  void set_slowest(base::Nanos slowest) { slowest_ = slowest; }
  base::Nanos bound() const { return bound_; }
  int simulated() const { return simulated_; }
  bool cut_short() const { return cut_short_; }
  bool out_of_effort();
  // Within one part in a thousand of the bound there is nothing left to find.
  bool is_at_bound() const { return score().fits && score().time.v <= bound_.v + bound_.v / 1000; }
  bool done() { return out_of_effort() || is_at_bound(); }

  // A schedule that fits and whose changes were not all tried, at most so many per cent of the
  // best's time: the best with operators fused in the way that was returned least often. What
  // leads to the best is often two decisions away, one of them how operators are fused.
  // `within`: only of those that use memory in this way.
  std::optional<Candidate> next_to_expand(int64_t percent, std::optional<Keeping> within);
  // The fastest that needs a little too much; its chain is not returned again.
  std::optional<Trial> take_fastest_too_large();

  // Records an internal error, which is a bug in dcc, and returns ok: the search loses only this
  // candidate. Returns every other error: it is the model's or the user's.
  base::Status left_out(const passes::Chain& chain, base::Status why);
  const std::vector<std::string>& refused() const { return refused_; }
  const base::Status& first_error() const { return first_error_; }

 private:
  bool wins(const Score& score) const;
  bool is_fastest(const Score& score) const;
  base::Result<bool> state_alone_is_too_large(const passes::Chain& chain);
  base::Result<bool> cannot_fit(const passes::Chain& chain);
  base::Status lay_out(const Candidate& candidate, Score& score);
  base::Result<MaybeScore> nothing_of(const passes::Chain& chain, const base::Status& why);
  Score score_of(const ScheduleCosts& costs) const;

  const passes::Options& options_;
  const SearchOptions& search_;
  int effort_, limit_ = INT_MAX;
  ScheduledSteps steps_;
  SmallestPlans smallest_;
  std::set<std::pair<std::string, int64_t>> tried_;  // and planned bytes
  std::map<std::string, Trial> latest_;              // by the chain's text
  std::vector<Trial> waiting_;                       // fit; what they lead to is untried
  std::array<int, std::size(kFusions)> expanded_{};  // by way of fusing: taken from these
  std::vector<Trial> too_large_;                     // by a little
  std::set<std::array<int64_t, 3>> costs_;           // time, communication and bytes of what fits
  Trial best_, fastest_;
  std::array<Trial, kKeepings> best_of_;
  base::Nanos bound_;
  base::Nanos slowest_{INT64_MAX};  // that a result within the budget may be
  base::Nanos least_{INT64_MAX};    // of what fits
  int simulated_ = 0, spent_ = 0;
  bool counts_layouts_ = false;
  bool cut_short_ = false;
  std::vector<std::string> refused_;
  base::Status first_error_;
};

}  // namespace dc::search
