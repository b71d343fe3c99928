// Search: one search over decisions, in one order of reductions. auto.cpp says which searches a
// result takes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/search/auto.h"
#include "src/search/certificate.h"
#include "src/search/descent.h"
#include "src/search/named_trials.h"
#include "src/search/scheduled_steps.h"
#include "src/search/search_state.h"
#include "src/search/smallest_chain.h"

namespace dc::search {

// The least of default_effort() for models of up to kManyNodes (auto.cpp), and for larger ones.
inline constexpr int64_t kLeastEffort = 28, kLeastOfAll = 8;
inline constexpr int64_t kNearEnd = 101;  // per cent of the best's time
// A search that makes all again, or nothing, ends with its starts where these take more than so
// many per cent of the best's time.
inline constexpr int64_t kNearOneWay = 110;

// Of large models what leaves the device takes as long to choose as all the rest: there the best
// alone is tried with all made again, and with nothing, instead of searches for these. `whole`: the
// effort of the whole search.
bool tries_ways_alone(int whole, const passes::Options& options, const passes::Chain& best);

// What searches in one order of reductions share.
struct OfOrder {
  Certificates certificates;  // of whatever may be made again
  StepStore steps;
  FusionTimes fusions{};  // of the first search's joint starts
};

// Call begin(), then finish() where that is worth it, then result().
class Search {
 public:
  // `shared`: certificates are found here unless they are. `whole`: the effort that its parts have
  // shares of. Where less is asked for, it does the same and ends earlier.
  // `is_first`: whether its result says what the smallest plan is where nothing fits, and which
  // named chain is the best that does.
  Search(const ir::Step& imported, const passes::Options& options, const cost::CostModel& cost,
         const SearchOptions& asked, int whole, OfOrder& shared, bool is_first = true);

  // Starts and named chains.
  base::Status begin();
  // From the best of them.
  base::Status finish();
  // The earlier plan's chain alone, where the starts are not worth going on from.
  base::Status try_earlier();
  // Where nothing keeps the budget: the smallest plan, which comes nearest.
  base::Result<SearchResult> result();
  // One chain, planned for all of the budget.
  base::Status try_alone(const passes::Chain& chain);
  // Passes leave a part of what the state does not take to the layout (schedule::live_limit()),
  // which mostly needs less of it: `from`, and planned for half of that too; if that fits, for all
  // of it.
  base::Status plan_for_more(const Candidate& from);
  const SearchState& state() const { return state_; }
  const std::vector<std::string>& left_out() const { return state_.trials().refused(); }
  // Whether each chain that has a text has more bytes live than the budget with as little kept as
  // recompute can keep, however its operators are fused.
  base::Result<bool> nothing_can_fit();

 private:
  Trials& trials() { return state_.trials(); }
  // Of effort, as Trials counts it.
  int parts() const { return whole_ * Trials::kWorkOfOne; }
  int kept_for_end() const { return std::min((whole_ + 2) / 8, 3) * Trials::kWorkOfOne; }
  // Beyond the effort, since a descent that ends earlier is another one.
  int more_for_end() const { return std::min((whole_ + 2) / 16, 2) * Trials::kWorkOfOne; }
  // A budget that the bound says is out of reach, and the smallest plan too.
  bool is_refused() const { return smallest_ && smallest_->bytes > state_.options().memory()->v; }
  // Where no plan can fit: with the smallest plan, if the result is asked for.
  bool is_over();
  // A search that ends with the first schedule that fits asks for none.
  base::Status find_bound();
  base::Status nothing_found();
  // Of the best. The bound says nothing of other kernels than those that it is of.
  std::optional<bound::LowerBound> certificate();
  void find_smallest();
  base::Status take_smallest();
  // Where nothing fits yet, the smallest plans of all that has a text; first of what may be the
  // smallest.
  base::Status fit_any();
  // The best may come from a chain whose addresses needed that it is planned for less.
  base::Status use_whole_budget();
  // What memory buys by more exchanges: of the best, then of the best of each other way to use
  // memory that is near it, as few exchanges say little of what more of them find. Passes that take
  // memory as it comes plan for less.
  base::Status refine();
  // The best with nothing made again, and with all; if that is near, its operators fused as keeps
  // less, and with all made again as many parameters whole as fit. Beyond the effort, a little.
  base::Status try_ways_alone();
  // The best, if its kernels make values again, with more or fewer of them made so.
  base::Status keep_more_or_less();
  // What is left of the effort: schedules near the fastest with operators fused and memory used as
  // it has them, to which a descent that moved on did not come. What costs the same is the same.
  base::Status use_as_fastest();
  // What it plans for less may come from another chain, whose addresses needed that: so first all
  // of the budget.
  base::Status exchange_longer(const Candidate& from);

  SearchState state_;
  NamedTrials named_;
  Descent descent_;
  OfOrder& shared_;
  const int whole_;
  const bool is_first_;
  std::optional<EarlierResult> earlier_;
  std::optional<SmallestChain> smallest_;  // asked for where nothing fits
};

}  // namespace dc::search
