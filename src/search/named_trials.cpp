#include "src/search/named_trials.h"

#include <algorithm>
#include <string>
#include <utility>

#include "src/search/smallest_chain.h"

namespace dc::search {

using base::Result;
using base::Status;
using passes::Chain;

Status NamedTrials::try_as_it_is(const NamedChain& named) {
  DC_ASSIGN_OR_RETURN(const Chain chain, state_.as_asked(find_chain(named.name)));
  if (!may_run(chain, state_.imported(), state_.options())) return {};
  if (state_.trials().out_of_effort() && !state_.best().chain.empty()) {
    tried_all_ = false;
    return {};
  }
  DC_ASSIGN_OR_RETURN(const MaybeScore score,
                      state_.trials().try_once(state_.trials().whole(chain)));
  tried_.push_back({named.name, chain});
  // best() asks for this layout; made now, it needs no other schedule.
  if (names_best_ && score && score->fits && score->time < least_) {
    const Result<bool> fits = state_.trials().latest_keeps_budget(chain);
    if (fits.ok() && *fits) least_ = score->time;
  }
  return {};
}

Status NamedTrials::try_all() {
  constexpr size_t kMostRecomputed = 3;
  for (const NamedChain& named : named_chains()) DC_RETURN_IF_ERROR(try_as_it_is(named));
  // A baseline that cannot be made for this step is left aside.
  for (const NamedChain& named : baseline_chains()) (void)try_as_it_is(named);
  std::vector<std::pair<Chain, Score>> too_large;
  for (const Named& named : tried_) {
    const std::optional<Score> score = state_.trials().latest(named.chain);
    if (score && !score->fits) too_large.emplace_back(named.chain, *score);
  }
  std::stable_sort(too_large.begin(), too_large.end(),
                   [](const auto& a, const auto& b) { return a.second.time < b.second.time; });
  // What costs the same is the same schedule: less memory finds no difference.
  too_large.erase(std::unique(too_large.begin(), too_large.end(),
                              [](const auto& a, const auto& b) { return a.second == b.second; }),
                  too_large.end());
  for (const auto& [chain, score] : too_large) {
    if (!state_.may_win(score)) break;
    DC_RETURN_IF_ERROR(state_.trials().plan_for_less(state_.trials().whole(chain), score));
  }
  too_large.resize(std::min(kMostRecomputed, too_large.size()));
  for (const auto& [chain, score] : too_large) {
    if (!state_.may_win(score)) break;
    DC_ASSIGN_OR_RETURN(const RecomputeMoves moves, state_.recompute_moves(chain));
    if (moves.range.most > moves.range.least)
      DC_RETURN_IF_ERROR(state_.try_whole(moves.at(chain, 0)).status());
  }
  return {};
}

Status NamedTrials::try_smallest() {
  if (state_.score().fits && !tried_all_) return {};  // the effort is not for more
  for (const Named& named : tried_) {
    const std::optional<Score> latest = state_.trials().latest(named.chain);
    if (!latest || latest->fits || !state_.may_win(*latest) || state_.is_enough()) continue;
    DC_RETURN_IF_ERROR(state_.trials().try_smallest(named.chain));
  }
  return {};
}

std::optional<NamedResult> NamedTrials::best() {
  std::vector<std::pair<base::Nanos, const Named*>> fitting;
  for (const Named& named : tried_) {
    const std::optional<Score> score = state_.trials().latest(named.chain);
    if (score && score->fits) fitting.emplace_back(score->time, &named);
  }
  std::stable_sort(fitting.begin(), fitting.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [time, named] : fitting) {
    const Result<bool> fits = state_.trials().latest_keeps_budget(named->chain);
    if (fits.ok() && *fits) return NamedResult{std::string(named->name), time};
  }
  return std::nullopt;
}

}  // namespace dc::search
