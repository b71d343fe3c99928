#include "src/search/auto.h"

#include <algorithm>
#include <climits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "src/schedule/time_axis.h"
#include "src/search/certificate.h"
#include "src/search/descent.h"
#include "src/search/earlier_plan.h"
#include "src/search/named_trials.h"
#include "src/search/search_state.h"
#include "src/search/smallest_chain.h"
#include "src/search/starts.h"
#include "src/search/try_starts.h"

namespace dc::search {
namespace {

// Of default_effort(), up to so many nodes; of larger models in proportion less.
constexpr int64_t kLeastEffort = 28, kLeastOfAll = 8;
constexpr int64_t kManyNodes = 50'000;
constexpr int kMostEffort = 1'000'000;
// Efforts of models above which there is time for more searches: with a little less memory, and
// without a budget.
constexpr int kHasTimeForLess = 60, kHasTimeForAll = 300;
constexpr int64_t kNearEnd = 101;  // per cent of the best's time
// A search that makes all again, or nothing, ends with its starts where these take more than so
// many per cent of the best's time.
constexpr int64_t kNearOneWay = 110;
// Effort for the ways of a large model that offloads.
constexpr int kOfWaysAlone = 5;
int of_one_way(int effort) { return std::max(1, effort / 2); }

using base::Result;
using base::Status;
using passes::Chain;
using passes::ReductionOrder;

// Of large models what leaves the device takes as long to choose as all the rest: there the best
// alone is tried with all made again, and with nothing, instead of searches for these. `whole`: the
// effort of the whole search.
bool tries_ways_alone(int whole, const passes::Options& options, const Chain& best) {
  return options.recompute == passes::Recompute::Auto && options.memory() && any_offloads(best) &&
         whole <= kLeastEffort;
}

// What searches in one order of reductions share.
struct OfOrder {
  Certificates certificates;  // of whatever may be made again
  StepStore steps;
};

// For one order of reductions. Call begin(), then finish() where that is worth it, then result().
class Search {
 public:
  // `shared`: certificates are found here unless they are. `whole`: the effort that its parts have
  // shares of. Where less is asked for, it does the same and ends earlier.
  // `says_smallest`: whether the result is asked for where nothing fits.
  Search(const ir::Step& imported, const passes::Options& options, const cost::CostModel& cost,
         const SearchOptions& asked, int whole, OfOrder& shared, bool says_smallest = true)
      : state_(imported, options, cost, asked, shared.steps),
        named_(state_),
        descent_(state_),
        certificates_(shared.certificates),
        whole_(whole),
        says_smallest_(says_smallest) {
    if (asked.effort < whole) trials().set_limit(asked.effort * Trials::kWorkOfOne);
    trials().set_effort(parts() - kept_for_end());
  }

  // Starts and named chains.
  Status begin() {
    DC_RETURN_IF_ERROR(find_bound());
    if (certificates_.is_out_of_reach() && is_over()) return {};
    DC_RETURN_IF_ERROR(try_joint_starts(state_));
    if (!state_.score().fits) {
      DC_RETURN_IF_ERROR(try_offload_starts(state_));
      DC_ASSIGN_OR_RETURN(const bool hopeless, nothing_can_fit());
      if (hopeless && is_over()) return {};
    }
    DC_RETURN_IF_ERROR(named_.try_all());
    DC_RETURN_IF_ERROR(try_other_starts(state_));
    return says_smallest_ ? fit_any() : Status();
  }

  // From the best of them.
  Status finish() {
    if (is_refused()) return {};
    trials().count_layouts();
    const int end = parts() - kept_for_end(), otherwise = parts() / 5;
    trials().set_effort(end - otherwise);
    DC_RETURN_IF_ERROR(descent_.run());
    DC_RETURN_IF_ERROR(use_whole_budget());
    DC_RETURN_IF_ERROR(descent_.run_otherwise(std::min(otherwise, end - trials().spent())));
    trials().set_effort(end);
    DC_RETURN_IF_ERROR(descent_.run());
    if (!state_.options().memory()) DC_RETURN_IF_ERROR(descent_.run_whole(parts() / 4));
    trials().set_effort(trials().spent() + kept_for_end() + more_for_end());
    DC_RETURN_IF_ERROR(refine());
    DC_RETURN_IF_ERROR(try_ways_alone());
    trials().take_fastest();
    DC_RETURN_IF_ERROR(try_earlier());
    return named_.try_smallest();
  }

  // The earlier plan's chain alone, where the starts are not worth going on from.
  Status try_earlier() {
    if (!state_.asked().earlier || is_refused()) return {};
    trials().set_limit(INT_MAX);
    DC_ASSIGN_OR_RETURN(earlier_, try_earlier_plan(state_, *state_.asked().earlier,
                                                   [&] { return descent_.run(); }));
    return {};
  }

  // Where nothing keeps the budget: the smallest plan, which comes nearest. `names_best`: whether
  // it says which named chain is the best that fits, which takes another layout.
  Result<SearchResult> result(bool names_best) {
    if (is_refused() || (!state_.score().fits && !trials().cut_short())) {
      if (!smallest_) find_smallest();
      DC_RETURN_IF_ERROR(take_smallest());
    }
    if (state_.best().chain.empty()) return nothing_found();
    SearchResult found{
        state_.best().chain,  state_.options(),  state_.score().time,  trials().bound(),
        state_.score().fits,  std::nullopt,      trials().simulated(), trials().spent(),
        trials().cut_short(), smallest_,         trials().refused(),   earlier_,
        certificate(),        named_.tried_all()};
    found.options.budgets[ir::Space::Device] = state_.best().planned;
    if (names_best) found.named = named_.best();
    return found;
  }

  // One chain, planned for all of the budget.
  Status try_alone(const Chain& chain) {
    DC_RETURN_IF_ERROR(find_bound());
    DC_RETURN_IF_ERROR(state_.try_whole(chain).status());
    return keep_more_or_less();
  }

  // Passes leave a part of what the state does not take to the layout (schedule::live_limit()),
  // which mostly needs less of it: `from`, and planned for half of that too; if that fits, for all
  // of it.
  Status plan_for_more(const Candidate& from) {
    DC_RETURN_IF_ERROR(find_bound());
    DC_RETURN_IF_ERROR(trials().try_once(from).status());
    const int64_t budget = state_.options().memory()->v;
    DC_ASSIGN_OR_RETURN(const int64_t state, trials().steps().state_bytes(from.chain));
    for (const int64_t part : {2 * schedule::kLeftToLayout, schedule::kLeftToLayout}) {
      if (!state_.score().fits || trials().is_at_bound()) return {};
      const base::Bytes more{budget + std::max<int64_t>(0, budget - state) / part};
      DC_ASSIGN_OR_RETURN(const MaybeScore score, trials().try_once({from.chain, more}));
      if (!score || !score->fits) return {};  // what plans for more needs more
    }
    return {};
  }

  const SearchState& state() const { return state_; }
  const std::vector<std::string>& left_out() const { return state_.trials().refused(); }

  // Whether each chain that has a text has more bytes live than the budget with as little kept as
  // recompute can keep, however its operators are fused.
  Result<bool> nothing_can_fit() {
    const std::optional<base::Bytes>& budget = state_.options().memory();
    if (!budget || state_.options().offload_space) return false;
    for (const Chain& text : chains_with_text(state_.imported(), state_.options())) {
      // However operators are fused, the state is the same.
      const Result<int64_t> state = trials().steps().state_bytes(text);
      if (state.ok() && *state > budget->v) continue;
      for (const size_t fusion : state_.fusions()) {
        const Chain chain = fused(text, fusion);
        if (chain.empty()) continue;
        const Result<LiveFloor> floor = trials().steps().live_floor(chain);
        if (!floor.ok() || floor->planned_least <= budget->v) return false;
      }
    }
    return true;
  }

 private:
  Trials& trials() { return state_.trials(); }

  // Of effort, as Trials counts it.
  int parts() const { return whole_ * Trials::kWorkOfOne; }
  int kept_for_end() const { return std::min(whole_ / 8, 3) * Trials::kWorkOfOne; }

  // Beyond the effort, since a descent that ends earlier is another one.
  int more_for_end() const { return std::min(whole_ / 16, 2) * Trials::kWorkOfOne; }

  // A budget that the bound says is out of reach, and the smallest plan too.
  bool is_refused() const { return smallest_ && smallest_->bytes > state_.options().memory()->v; }

  // Where no plan can fit: with the smallest plan, if the result is asked for.
  bool is_over() {
    if (says_smallest_) find_smallest();
    return !says_smallest_ || is_refused();
  }

  // A search that ends with the first schedule that fits asks for none.
  Status find_bound() {
    if (state_.asked().first_fit) return {};
    if (const Status compared = state_.compare_fusions(); !compared.ok())
      return trials().left_out({}, compared);
    passes::Options options = state_.options();
    if (state_.asked().budget) options.budgets[ir::Space::Device] = state_.asked().budget;
    if (!certificates_.are_found()) {
      const Status found = certificates_.find(state_.fusions(), trials().steps(), state_.imported(),
                                              options, state_.cost());
      if (!found.ok()) return trials().left_out({}, found);
    }
    trials().set_bound(certificates_.least());
    return {};
  }

  Status nothing_found() {
    const Status& why = trials().first_error();
    if (!why.ok()) return why;
    return Status(base::ErrorKind::Internal, "DC2615",
                  "all chains of the search were left out, because of bugs in dcc");
  }

  // Of the best. The bound says nothing of other kernels than those that it is of.
  std::optional<bound::LowerBound> certificate() {
    if (trials().bound().v == 0) return std::nullopt;
    return certificates_.of(fusion_of(state_.best().chain));
  }

  void find_smallest() {
    smallest_ = trials().smallest_of(chains_with_text(state_.imported(), state_.options()));
  }

  Status take_smallest() {
    if (!smallest_) return {};
    Trial before = trials().exchange_best({});
    trials().forget(smallest_->chain);
    DC_RETURN_IF_ERROR(trials().try_once({smallest_->chain, smallest_->options.memory()}).status());
    if (state_.best().chain.empty()) trials().exchange_best(std::move(before));
    return {};
  }

  // Where nothing fits yet, the smallest plans of all that has a text; first of what may be the
  // smallest.
  Status fit_any() {
    if (!state_.options().memory() || state_.score().fits) return {};
    std::vector<std::pair<int64_t, Chain>> chains;  // and the bytes that are live in any plan
    for (const Chain& text : chains_with_text(state_.imported(), state_.options())) {
      DC_ASSIGN_OR_RETURN(Chain chain, state_.as_asked(text));
      const Result<int64_t> live = trials().steps().least_live(chain);
      if (!live.ok()) {
        DC_RETURN_IF_ERROR(trials().left_out(chain, live.status()));
        continue;
      }
      chains.emplace_back(*live == 0 ? INT64_MAX : *live, std::move(chain));  // 0: not known
    }
    std::stable_sort(chains.begin(), chains.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [live, chain] : chains) {
      if (state_.score().fits) return {};
      DC_RETURN_IF_ERROR(trials().try_smallest(chain));
    }
    return {};
  }

  // The best may come from a chain whose addresses needed that it is planned for less.
  Status use_whole_budget() {
    const Candidate best = state_.best();
    if (best.chain.empty() || !(best.planned < state_.options().memory())) return {};
    return state_.try_whole(best.chain).status();
  }

  // What memory buys by more exchanges: of the best, then of the best of each other way to use
  // memory that is near it, as few exchanges say little of what more of them find. Passes that take
  // memory as it comes plan for less.
  Status refine() {
    if (state_.best().chain.empty() || trials().is_at_bound()) return {};
    DC_RETURN_IF_ERROR(use_whole_budget());
    const Candidate before = state_.best();
    if (!state_.decides_jointly()) {
      if (!state_.score().fits) return {};
      DC_RETURN_IF_ERROR(descent_.plan_for_less(before));
      return keep_more_or_less();
    }
    const Score best = state_.score();
    DC_RETURN_IF_ERROR(exchange_longer(before));
    const Candidate fastest = trials().fastest().candidate;
    if (find_exchanges(fastest.chain) && fastest.chain != before.chain)
      DC_RETURN_IF_ERROR(exchange_longer(fastest));
    for (const Keeping other : {Keeping::Jointly, Keeping::Parameters, Keeping::AllActivations}) {
      const Trial& near = trials().best_of(other);
      if (other != keeping_of(before.chain) && !near.empty() && near.score != best &&
          near.score.time.v / kNearEnd <= best.time.v / 100)
        DC_RETURN_IF_ERROR(exchange_longer(near.candidate));
    }
    DC_RETURN_IF_ERROR(use_as_fastest());
    return keep_more_or_less();
  }
  // The best with nothing made again, and with all; if that is near, its operators fused as keeps
  // less, and with all made again as many parameters whole as fit. Beyond the effort, a little.
  Status try_ways_alone() {
    const Chain best = state_.best().chain;
    if (!tries_ways_alone(whole_, state_.options(), best) || whole_ <= kLeastOfAll) return {};
    // What ends earlier does no more than the whole search.
    if (state_.asked().effort < whole_ || !state_.score().fits) return {};
    trials().set_effort(trials().spent() + kOfWaysAlone * Trials::kWorkOfOne);
    const Chain full = said_to_decide(best, passes::Recompute::Full);
    for (const Chain& way : {said_to_decide(best, passes::Recompute::Off), full}) {
      DC_RETURN_IF_ERROR(state_.try_whole(way).status());
      const std::optional<Score> score = trials().latest(way);
      if (!score || score->time.v / kNearOneWay > state_.score().time.v / 100) continue;
      for (const Chain& other : state_.fused_otherwise(way)) {
        if (fusion_of(other) != kNothingFused) DC_RETURN_IF_ERROR(state_.try_whole(other).status());
      }
      if (way == full && !find_exchanges(full))
        DC_RETURN_IF_ERROR(
            state_.try_whole(with(full, *passes::find_pass("keep-parameters"), kFirstExchanges))
                .status());
    }
    return {};
  }
  // The best, if its kernels make values again, with more or fewer of them made so.
  Status keep_more_or_less() {
    const size_t fusion = fusion_of(state_.best().chain);
    if (fusion != kKeepsLess && fusion != kKeepsLeast) return {};
    const size_t otherwise = fusion == kKeepsLess ? kKeepsLeast : kKeepsLess;
    if (std::ranges::count(state_.fusions(), otherwise) == 0) return {};
    const Chain other = fused(state_.best().chain, otherwise);
    return state_.try_next({other, state_.best().planned}).status();
  }
  // What is left of the effort: schedules near the fastest with operators fused and memory used as
  // it has them, to which a descent that moved on did not come. What costs the same is the same.
  Status use_as_fastest() {
    const Chain fastest = trials().fastest().candidate.chain;
    const passes::PassCall* exchanges = find_exchanges(fastest);
    if (!exchanges) return {};
    Score before;
    for (const Trial& near : trials().near_fastest(kNearEnd)) {
      if (near.score == std::exchange(before, near.score)) continue;
      Chain other = fused(near.candidate.chain, fusion_of(fastest));
      if (!find_exchanges(other)) continue;
      std::ranges::replace_if(
          other, [](const passes::PassCall& call) { return makes_exchanges(*call.pass); },
          *exchanges);
      DC_RETURN_IF_ERROR(state_.try_next({other, near.candidate.planned}).status());
    }
    return {};
  }
  // What it plans for less may come from another chain, whose addresses needed that: so first all
  // of the budget.
  Status exchange_longer(const Candidate& from) {
    const Chain longer = with(from.chain, *find_exchanges(from.chain)->pass, kLastExchanges);
    if (from.planned < state_.options().memory())
      DC_RETURN_IF_ERROR(state_.try_whole(longer).status());
    return state_.try_next({longer, from.planned}).status();
  }

  SearchState state_;
  NamedTrials named_;
  Descent descent_;
  Certificates& certificates_;
  const int whole_;
  const bool says_smallest_;
  std::optional<EarlierResult> earlier_;
  std::optional<SmallestChain> smallest_;  // asked for where nothing fits
};

// Whether the starts of `one` are not near enough to those of `other` to go on.
bool is_beaten(const SearchState& one, const SearchState& other) {
  if (one.best().chain.empty()) return !other.best().chain.empty();
  return other.score().fits && (!one.score().fits || other.is_far(one.score()));
}

int64_t least_bytes(const SearchResult& result) {
  return result.smallest ? result.smallest->bytes : INT64_MAX;
}

// The better of both, with what is known of both.
SearchResult joined(SearchResult one, SearchResult other) {
  const bool other_wins = one.fits || other.fits
                              ? other.fits && (!one.fits || other.time < one.time)
                              : least_bytes(other) < least_bytes(one);
  if (other_wins) std::swap(one, other);
  one.simulated += other.simulated;
  one.spent += other.spent;
  one.bound = std::min(one.bound, other.bound);
  one.cut_short = one.cut_short || other.cut_short;
  one.all_named = one.all_named && other.all_named;
  if (other.named && (!one.named || other.named->time < one.named->time)) one.named = other.named;
  if (other.smallest && (!one.smallest || other.smallest->bytes < one.smallest->bytes))
    one.smallest = other.smallest;
  one.refused.insert(one.refused.end(), other.refused.begin(), other.refused.end());
  return one;
}

using Orders = std::map<ReductionOrder, OfOrder>;

Result<SearchResult> find_in_orders(const ir::Step& imported, const passes::Options& options,
                                    const cost::CostModel& cost, const SearchOptions& asked,
                                    int whole, Orders& orders) {
  passes::Options decided = options;
  if (options.reduction_order != ReductionOrder::PerStep)
    decided.reduction_order = ReductionOrder::PerMicroBatch;
  Search each(imported, decided, cost, asked, whole, orders[decided.reduction_order]);
  DC_RETURN_IF_ERROR(each.begin());
  if (options.reduction_order != ReductionOrder::Any || imported.accumulation == 1) {
    DC_RETURN_IF_ERROR(each.finish());
    return each.result(true);
  }
  decided.reduction_order = ReductionOrder::PerStep;
  Search once(imported, decided, cost, asked, whole, orders[decided.reduction_order]);
  DC_RETURN_IF_ERROR(once.begin());
  const bool each_is_beaten = is_beaten(each.state(), once.state());
  const bool once_is_beaten = is_beaten(once.state(), each.state());
  DC_RETURN_IF_ERROR(each_is_beaten ? each.try_earlier() : each.finish());
  DC_RETURN_IF_ERROR(once_is_beaten ? once.try_earlier() : once.finish());
  Result<SearchResult> of_each = each.result(true), of_once = once.result(true);
  if (of_each.ok() && of_once.ok()) return joined(std::move(*of_each), std::move(*of_once));
  // Of one order every chain was left out.
  Result<SearchResult>& found = of_each.ok() ? of_each : of_once;
  if (!found.ok()) return of_each;
  const std::vector<std::string>& left_out = (of_each.ok() ? once : each).left_out();
  found->refused.insert(found->refused.end(), left_out.begin(), left_out.end());
  return std::move(found);
}

// The better of `best` and what a search finds that makes all again, or nothing, as `options` say,
// in the order of reductions of `best`. Nothing if it finds nothing near.
Status try_one_way(const ir::Step& imported, passes::Options options, const cost::CostModel& cost,
                   const SearchOptions& asked, int whole, Orders& orders, SearchResult& best) {
  const passes::Recompute way = options.recompute;
  options.reduction_order = best.options.reduction_order;
  Search search(imported, options, cost, asked, whole, orders[options.reduction_order], false);
  if (way == passes::Recompute::Off) {
    DC_ASSIGN_OR_RETURN(const bool hopeless, search.nothing_can_fit());
    if (hopeless) return {};
  }
  DC_RETURN_IF_ERROR(search.begin());
  best.cut_short = best.cut_short || search.state().trials().cut_short();
  const Score& score = search.state().score();
  if (!score.fits || score.time.v / kNearOneWay > best.time.v / 100) return {};
  DC_RETURN_IF_ERROR(search.finish());
  // As the option alone does. Of `best` it is tried at the end.
  const Candidate of_way = search.state().best();
  const bool is_near =
      options.memory() && score.fits && score.time.v / kNearEnd <= best.time.v / 100;
  if (asked.effort >= whole && is_near && said_to_decide(of_way.chain, way) != best.chain)
    DC_RETURN_IF_ERROR(search.plan_for_more(of_way));
  DC_ASSIGN_OR_RETURN(SearchResult found, search.result(false));
  found.chain = said_to_decide(found.chain, way);
  found.options.recompute = passes::Recompute::Auto;
  // Of the search before; named chains now are others.
  found.all_named = best.all_named;
  found.earlier = best.earlier;
  if (found.fits && !asked.left_out.contains(passes::print(found.chain)))
    best = joined(std::move(best), std::move(found));
  return {};
}

// The better of `best` and what `search` has. Of named chains `best` knows more.
Status take_better(Search& search, SearchResult& best) {
  if (!search.state().score().fits) return {};
  DC_ASSIGN_OR_RETURN(SearchResult found, search.result(false));
  found.all_named = best.all_named;
  found.earlier = best.earlier;
  best = joined(std::move(best), std::move(found));
  return {};
}

// The better of `best` and another chain, in one order of reductions.
Status try_chain(const ir::Step& imported, passes::Options options, ReductionOrder order,
                 const Chain& chain, const cost::CostModel& cost, const SearchOptions& asked,
                 int whole, Orders& orders, SearchResult& best) {
  options.reduction_order = order;
  Search search(imported, options, cost, asked, whole, orders[order]);
  DC_RETURN_IF_ERROR(search.try_alone(chain));
  return take_better(search, best);
}

// The better of `best` and its chain by passes that plan for what they leave to the layout too.
Status try_for_more(const ir::Step& imported, passes::Options options, const cost::CostModel& cost,
                    const SearchOptions& asked, int whole, Orders& orders, SearchResult& best) {
  options.reduction_order = best.options.reduction_order;
  Search search(imported, options, cost, asked, whole, orders[options.reduction_order], false);
  DC_RETURN_IF_ERROR(search.plan_for_more({best.chain, best.options.memory()}));
  return take_better(search, best);
}

// The better of `best` and, under the budget, the chain that a search for another one found.
Status try_found(const ir::Step& imported, const passes::Options& options,
                 const SearchResult& found, const cost::CostModel& cost, const SearchOptions& asked,
                 int whole, Orders& orders, SearchResult& best) {
  best.cut_short = best.cut_short || found.cut_short;
  best.simulated += found.simulated;
  best.spent += found.spent;
  if (found.chain.empty() || !found.fits || found.time >= best.time) return {};
  return try_chain(imported, options, found.options.reduction_order, found.chain, cost, asked,
                   whole, orders, best);
}

// The better of `best` and what a search without a budget finds, under the budget.
Status try_without_budget(const ir::Step& imported, const passes::Options& options,
                          const cost::CostModel& cost, const SearchOptions& asked, int whole,
                          Orders& orders, SearchResult& best) {
  passes::Options without = options;
  without.budgets[ir::Space::Device].reset();
  DC_ASSIGN_OR_RETURN(const SearchResult free,
                      find_in_orders(imported, without, cost, asked, whole, orders));
  return try_found(imported, options, free, cost, asked, whole, orders, best);
}

// The better of `best` and what a search for a little less memory finds, under the budget.
Status try_with_less(const ir::Step& imported, const passes::Options& options,
                     const cost::CostModel& cost, const SearchOptions& asked, int whole,
                     Orders& orders, SearchResult& best) {
  constexpr int64_t kLess = 8;  // parts of the budget, of which it has one less
  passes::Options less = options;
  less.reduction_order = best.options.reduction_order;
  less.budgets[ir::Space::Device] = base::Bytes{options.memory()->v / kLess * (kLess - 1)};
  Search search(imported, less, cost, asked, whole, orders[less.reduction_order], false);
  DC_RETURN_IF_ERROR(search.begin());
  best.cut_short = best.cut_short || search.state().trials().cut_short();
  if (!search.state().score().fits) return {};
  DC_RETURN_IF_ERROR(search.finish());
  DC_ASSIGN_OR_RETURN(const SearchResult found, search.result(false));
  return try_found(imported, options, found, cost, asked, whole, orders, best);
}

// Records an error of what may be left out, as Trials does.
void note(const Status& status, SearchResult& best) {
  if (!status.ok()) best.refused.push_back(status.code() + " " + status.sentence());
}

Result<SearchResult> find_in_ways(const ir::Step& imported, const passes::Options& options,
                                  const cost::CostModel& cost, const SearchOptions& asked,
                                  int whole, Orders& orders) {
  DC_ASSIGN_OR_RETURN(SearchResult best,
                      find_in_orders(imported, options, cost, asked, whole, orders));
  const bool decides = options.recompute == passes::Recompute::Auto;
  if (!decides || asked.effort <= kLeastOfAll || !best.fits || best.cut_short || asked.first_fit)
    return best;
  if (tries_ways_alone(whole, options, best.chain)) return best;
  constexpr passes::Recompute kWays[] = {passes::Recompute::Full, passes::Recompute::Off};
  SearchOptions of_way = asked;
  of_way.effort = of_one_way(asked.effort);
  of_way.earlier.reset();
  for (const passes::Recompute way : kWays) {
    if (way == passes::Recompute::Full && !options.memory()) continue;  // nothing asks for it
    passes::Options one_way = options;
    one_way.recompute = way;
    note(try_one_way(imported, one_way, cost, of_way, of_one_way(whole), orders, best), best);
  }
  if (!options.memory()) return best;
  of_way.effort = asked.effort;
  const int effort = std::min(asked.effort, default_effort(imported, options));
  if (effort > kHasTimeForLess)
    note(try_with_less(imported, options, cost, of_way, whole, orders, best), best);
  if (effort > kHasTimeForAll)
    note(try_without_budget(imported, options, cost, of_way, whole, orders, best), best);
  return best;
}

// One search of at most `asked.effort`, which does what one of the effort `whole` begins with.
Result<SearchResult> find_within(const ir::Step& imported, const passes::Options& options,
                                 const cost::CostModel& cost, const SearchOptions& asked, int whole,
                                 Orders& orders) {
  DC_ASSIGN_OR_RETURN(SearchResult best,
                      find_in_ways(imported, options, cost, asked, whole, orders));
  // What ends earlier does no more than the whole one.
  const bool is_whole = asked.effort >= whole && !best.cut_short && !asked.first_fit;
  if (is_whole && best.fits && options.memory())
    note(try_for_more(imported, options, cost, asked, whole, orders, best), best);
  return best;
}

}  // namespace

int default_effort(const ir::Step& imported, const passes::Options& options) {
  constexpr int64_t kNodes = 400'000;
  constexpr int64_t kNodesOfParameter = 8;  // that passes add: gathers, reductions, an update
  const bool may_offload = options.offload_space.has_value();
  const int64_t most = may_offload ? 1000 : 384;  // there is more to decide
  int64_t nodes = 1 + node_count(imported) +
                  kNodesOfParameter * static_cast<int64_t>(imported.parameters.size());
  // Of several micro-batches there are two programs, or three with parameters whole through all.
  const int64_t parts = imported.accumulation > 1 ? 6 : 4;
  const int64_t least =
      std::clamp<int64_t>(kLeastEffort * kManyNodes / nodes, kLeastOfAll, kLeastEffort * 4 / parts);
  nodes += (parts - 4) * nodes / 4;
  if (may_offload) nodes *= 2;  // what leaves the device takes as long to choose as all the rest
  const int64_t effort = std::clamp<int64_t>(kNodes / nodes, least, most);
  // What is made again is no decision then.
  const bool decides = options.recompute == passes::Recompute::Auto;
  return decides ? static_cast<int>(effort) : of_one_way(static_cast<int>(effort));
}

Result<SearchResult> find_best(const ir::Step& imported, const passes::Options& options,
                               const cost::CostModel& cost, const SearchOptions& asked) {
  constexpr int kTimesMore = 8;
  const int effort = std::min(asked.effort, kMostEffort);
  Orders orders;
  std::optional<SearchResult> best;
  for (int whole = default_effort(imported, options);; whole *= kTimesMore) {
    SearchOptions search = asked;
    search.effort = std::min(effort, whole);
    DC_ASSIGN_OR_RETURN(SearchResult found,
                        find_within(imported, options, cost, search, whole, orders));
    best = best ? joined(std::move(*best), std::move(found)) : std::move(found);
    if (whole >= effort || best->cut_short || asked.first_fit || !best->fits)
      return std::move(*best);
  }
}

}  // namespace dc::search
