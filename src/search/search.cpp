#include "src/search/search.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "src/schedule/time_axis.h"
#include "src/search/earlier_plan.h"
#include "src/search/starts.h"
#include "src/search/try_starts.h"

namespace dc::search {
namespace {

constexpr int kOfWaysAlone = 5;  // effort

}  // namespace

using base::Result;
using base::Status;
using passes::Chain;

bool tries_ways_alone(int whole, const passes::Options& options, const Chain& best) {
  return options.recompute == passes::Recompute::Auto && options.memory() && any_offloads(best) &&
         whole <= kLeastEffort;
}

Search::Search(const ir::Step& imported, const passes::Options& options,
               const cost::CostModel& cost, const SearchOptions& asked, int whole, OfOrder& shared,
               bool is_first)
    : state_(imported, options, cost, asked, shared.steps),
      named_(state_, is_first),
      descent_(state_),
      shared_(shared),
      whole_(whole),
      is_first_(is_first) {
  if (asked.effort < whole) trials().set_limit(asked.effort * Trials::kWorkOfOne);
  trials().set_effort(parts() - kept_for_end());
}

Status Search::begin() {
  DC_RETURN_IF_ERROR(find_bound());
  if (shared_.certificates.is_out_of_reach() && is_over()) return {};
  // The least effort is not for what made no difference before.
  if (!is_first_ && whole_ <= kLeastEffort / 4) state_.take_from_before(shared_.fusions);
  DC_RETURN_IF_ERROR(try_joint_starts(state_));
  if (is_first_) shared_.fusions = state_.of_fusion();
  if (!state_.score().fits) {
    DC_RETURN_IF_ERROR(try_offload_starts(state_));
    DC_ASSIGN_OR_RETURN(const bool hopeless, nothing_can_fit());
    if (hopeless && is_over()) return {};
  }
  DC_RETURN_IF_ERROR(named_.try_all());
  DC_RETURN_IF_ERROR(try_other_starts(state_));
  return is_first_ ? fit_any() : Status();
}

Status Search::finish() {
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

Status Search::try_earlier() {
  if (!state_.asked().earlier || is_refused()) return {};
  trials().set_limit(INT_MAX);
  DC_ASSIGN_OR_RETURN(
      earlier_, try_earlier_plan(state_, *state_.asked().earlier, [&] { return descent_.run(); }));
  return {};
}

Result<SearchResult> Search::result() {
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
  if (is_first_) found.named = named_.best();
  return found;
}

Status Search::try_alone(const Chain& chain) {
  DC_RETURN_IF_ERROR(find_bound());
  DC_RETURN_IF_ERROR(state_.try_whole(chain).status());
  return keep_more_or_less();
}

Status Search::plan_for_more(const Candidate& from) {
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

Result<bool> Search::nothing_can_fit() {
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

bool Search::is_over() {
  if (is_first_) find_smallest();
  return !is_first_ || is_refused();
}

Status Search::find_bound() {
  if (state_.asked().first_fit) return {};
  if (const Status compared = state_.compare_fusions(); !compared.ok())
    return trials().left_out({}, compared);
  passes::Options options = state_.options();
  if (state_.asked().budget) options.budgets[ir::Space::Device] = state_.asked().budget;
  if (!shared_.certificates.are_found()) {
    const Status found = shared_.certificates.find(state_.fusions(), trials().steps(),
                                                   state_.imported(), options, state_.cost());
    if (!found.ok()) return trials().left_out({}, found);
  }
  trials().set_bound(shared_.certificates.least());
  return {};
}

Status Search::nothing_found() {
  const Status& why = trials().first_error();
  if (!why.ok()) return why;
  return Status(base::ErrorKind::Internal, "DC2615",
                "all chains of the search were left out, because of bugs in dcc");
}

std::optional<bound::LowerBound> Search::certificate() {
  if (trials().bound().v == 0) return std::nullopt;
  return shared_.certificates.of(fusion_of(state_.best().chain));
}

void Search::find_smallest() {
  smallest_ = trials().smallest_of(chains_with_text(state_.imported(), state_.options()));
}

Status Search::take_smallest() {
  if (!smallest_) return {};
  Trial before = trials().exchange_best({});
  trials().forget(smallest_->chain);
  DC_RETURN_IF_ERROR(trials().try_once({smallest_->chain, smallest_->options.memory()}).status());
  if (state_.best().chain.empty()) trials().exchange_best(std::move(before));
  return {};
}

Status Search::fit_any() {
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

Status Search::use_whole_budget() {
  const Candidate best = state_.best();
  if (best.chain.empty() || !(best.planned < state_.options().memory())) return {};
  return state_.try_whole(best.chain).status();
}

Status Search::refine() {
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

Status Search::try_ways_alone() {
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

Status Search::keep_more_or_less() {
  const size_t fusion = fusion_of(state_.best().chain);
  if (fusion != kKeepsLess && fusion != kKeepsLeast) return {};
  const size_t otherwise = fusion == kKeepsLess ? kKeepsLeast : kKeepsLess;
  if (std::ranges::count(state_.fusions(), otherwise) == 0) return {};
  const Chain other = fused(state_.best().chain, otherwise);
  return state_.try_next({other, state_.best().planned}).status();
}

Status Search::use_as_fastest() {
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

Status Search::exchange_longer(const Candidate& from) {
  const Chain longer = with(from.chain, *find_exchanges(from.chain)->pass, kLastExchanges);
  if (from.planned < state_.options().memory())
    DC_RETURN_IF_ERROR(state_.try_whole(longer).status());
  return state_.try_next({longer, from.planned}).status();
}

}  // namespace dc::search
