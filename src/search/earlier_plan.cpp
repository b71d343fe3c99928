#include "src/search/earlier_plan.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "src/schedule/time_axis.h"
#include "src/search/opening.h"
#include "src/search/starts.h"

namespace dc::search {
namespace {

using base::Result;
using base::Status;

constexpr int kLeastTries = 8;  // schedules that the chain may take

// As if nothing had been tried.
Status try_anew(Trials& trials, const std::optional<base::Bytes>& budget,
                const Candidate& earlier) {
  trials.forget(earlier.chain);
  const auto may_keep = [&](base::Bytes planned) {
    return planned != *budget && planned.v - planned.v / schedule::kLeftToLayout <= budget->v;
  };
  if (earlier.planned && budget && may_keep(*earlier.planned)) {
    DC_RETURN_IF_ERROR(trials.try_candidate(earlier).status());
    if (trials.score().fits) trials.set_slowest(trials.score().time);
  }
  return trials.try_candidate(trials.whole(earlier.chain)).status();
}

// Whether the bound over choices is of this chain's kernels.
bool is_bounded(const passes::Chain& chain) {
  const bool fuses_otherwise = find_call(chain, "fuse-greedily") || find_call(chain, "disco") ||
                               find_call(chain, "fuse-jointly");
  const std::string text = passes::print(chain);
  for (const std::string_view by_host : {std::string_view(), kByHost}) {
    for (const std::string_view fuse : kFusions) {
      const std::string begin =
          std::string(by_host) + DC_OPENING + std::string(fuse) + "shard-parameters=";
      if (text.starts_with(begin)) return !fuses_otherwise;
    }
  }
  return false;
}

bool is_better(const Score& score, const Score& before) {
  return score.fits && before.fits ? score.time < before.time : score.better_than(before);
}

}  // namespace

Result<EarlierResult> try_earlier_plan(SearchState& state, const EarlierChain& earlier,
                                       const std::function<Status()>& descend) {
  const auto& [plan, candidate] = earlier;
  if (!state.options().offload_space && any_offloads(candidate.chain)) {
    return EarlierResult{plan, "its chain offloads, which needs --offload-space", {}, false, false};
  }
  if (state.is_enough()) {
    const bool cut_short = state.trials().cut_short();
    return EarlierResult{
        plan, cut_short ? "--search-time ended the search" : "a plan fits", {}, false, false};
  }
  Trials& trials = state.trials();
  const base::Nanos bound = trials.bound();
  if (!is_bounded(candidate.chain)) trials.set_bound({});
  const Trial before = trials.exchange_best({});
  const int tries = std::max(state.asked().effort / 2, kLeastTries);
  trials.set_effort(trials.spent() + tries * Trials::kWorkOfOne);
  const Status tried = try_anew(trials, state.options().memory(), candidate);
  EarlierResult result{plan, "", trials.score().time, trials.score().fits, false};
  const bool made = !trials.best().chain.empty();
  if (!made) {
    result.refused = tried.ok() ? "a bug in dcc, in a pass of its chain" : tried.sentence();
  }
  result.wins = made && (before.empty() || is_better(trials.score(), before.score));
  if (!result.wins) {
    trials.exchange_best(before);
    trials.set_bound(bound);
    return result;
  }
  if (trials.score().fits) trials.set_slowest(trials.score().time);
  DC_RETURN_IF_ERROR(descend());
  return result;
}

}  // namespace dc::search
