#include "src/search/auto.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/search/search.h"

namespace dc::search {
namespace {

constexpr int64_t kManyNodes = 50'000;
constexpr int kMostEffort = 1'000'000;
// Efforts of models above which there is time for more searches: with a little less memory, and
// without a budget.
constexpr int kHasTimeForLess = 60, kHasTimeForAll = 300;
int of_one_way(int effort) { return std::max(1, effort / 2); }

using base::Result;
using base::Status;
using passes::Chain;
using passes::ReductionOrder;

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
    return each.result();
  }
  decided.reduction_order = ReductionOrder::PerStep;
  Search once(imported, decided, cost, asked, whole, orders[decided.reduction_order]);
  DC_RETURN_IF_ERROR(once.begin());
  const bool each_is_beaten = is_beaten(each.state(), once.state());
  const bool once_is_beaten = is_beaten(once.state(), each.state());
  DC_RETURN_IF_ERROR(each_is_beaten ? each.try_earlier() : each.finish());
  DC_RETURN_IF_ERROR(once_is_beaten ? once.try_earlier() : once.finish());
  Result<SearchResult> of_each = each.result(), of_once = once.result();
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
  DC_ASSIGN_OR_RETURN(SearchResult found, search.result());
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
  DC_ASSIGN_OR_RETURN(SearchResult found, search.result());
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
  DC_ASSIGN_OR_RETURN(const SearchResult found, search.result());
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
  // Without a budget nothing is laid out, and what may offload has twice the time.
  const bool accumulates = imported.accumulation > 1;
  const bool lays_out = options.memory() && !may_offload;
  const int64_t most_of_large =
      accumulates ? (lays_out ? kLeastEffort / 2 : kLeastEffort * 2 / 3) : kLeastEffort;
  const int64_t least =
      std::clamp<int64_t>(kLeastEffort * kManyNodes / nodes, kLeastOfAll, most_of_large);
  if (accumulates) nodes += nodes / 2;
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
