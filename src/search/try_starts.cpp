#include "src/search/try_starts.h"

#include <algorithm>
#include <span>
#include <string>

#include "src/search/starts.h"

namespace dc::search {
namespace {

using base::Result;
using base::Status;
using passes::Chain;

// Parameters, so that exchanges decide which stay whole.
bool gathers_again(const Chain& chain) {
  const passes::PassCall* shard = find_call(chain, "shard-parameters");
  return shard && shard->argument == 3;
}

// As much is made again as the budget asks.
bool asks_budget(const Chain& chain) {
  const passes::PassCall* recompute = find_call(chain, "recompute");
  return recompute && !recompute->argument;
}

Status try_start(SearchState& state, std::string_view prefix, const Start& start) {
  const std::string text = std::string(prefix).append(start.begin).append(start.rest);
  DC_ASSIGN_OR_RETURN(Chain chain, state.as_asked(passes::parse_passes(text)));
  if (state.score().fits) chain = fused(chain, fusion_of(state.best().chain));
  if (!any_offloads(chain) && state.score().fits && state.decides_jointly()) {
    const bool keeps_whole = find_call(chain, "keep-resident") != nullptr;
    if (gathers_again(chain) && !keeps_whole &&
        state.keeps_through_micro_batches(state.best().chain))
      return {};
    DC_ASSIGN_OR_RETURN(const bool tight, state.is_tight(chain));
    if (tight && gathers_again(chain)) return {};
    if (tight) return state.try_whole(with(chain, *passes::find_pass("recompute"), 0)).status();
  }
  DC_ASSIGN_OR_RETURN(const MaybeScore score, state.try_whole(chain));
  if (!score || state.is_far(*score) || state.trials().done()) return {};
  DC_ASSIGN_OR_RETURN(const RecomputeMoves moves, state.recompute_moves(chain));
  return moves.pays() ? state.try_whole(moves.at(chain, 0)).status() : Status();
}

// Over all ranks, and inside hosts where there are any.
Status try_each(SearchState& state, std::span<const Start> starts) {
  for (const std::string_view prefix : {std::string_view(), kByHost}) {
    if (!prefix.empty() && !has_hosts(state.imported(), state.options())) break;
    for (const Start& start : starts) DC_RETURN_IF_ERROR(try_start(state, prefix, start));
  }
  return {};
}

// What keeps least takes more time, so it is where to go on from only if it is much faster. Where
// it is not, a descent comes to it later.
Status try_keeping_least(SearchState& state, const Chain& chain) {
  constexpr int64_t kMuchFaster = 97;  // per cent of the time
  const Trial before{state.score(), state.best()};
  DC_RETURN_IF_ERROR(state.try_whole(chain).status());
  if (before.score.fits && state.score().time.v > before.score.time.v / 100 * kMuchFaster)
    state.trials().exchange_best(before);
  return {};
}

// The best with its operators fused in the other ways, where that makes a difference.
Status try_fusions(SearchState& state) {
  const Chain from = state.best().chain;
  if (from.empty()) return {};
  for (const Chain& other : state.fused_otherwise(from)) {
    if (state.are_alike(fusion_of(from), fusion_of(other))) continue;
    if (fusion_of(other) == kKeepsLeast)
      DC_RETURN_IF_ERROR(try_keeping_least(state, other));
    else
      DC_RETURN_IF_ERROR(state.try_whole(other).status());
  }
  return {};
}

// The best with nothing made again, where that may fit and it is not so already.
Status try_all_activations(SearchState& state) {
  Trials& trials = state.trials();
  const Chain& from = state.best().chain;
  if (!state.score().fits || !state.decides_jointly() || !find_call(from, "recompute") ||
      state.options().recompute != passes::Recompute::Auto || trials.done())
    return {};
  DC_ASSIGN_OR_RETURN(const bool is_so, state.keeps_all(from));
  if (is_so) return {};
  if (state.options().memory()) {
    DC_ASSIGN_OR_RETURN(const bool may_fit, state.may_keep_all(from));
    if (!may_fit) return {};
  }
  return trials.try_once(trials.whole(with_all_activations(from))).status();
}

// The best with about as many parameters whole through all micro-batches as the budget has room for
// where all is made again; where these need too much, with as many fewer; and with half as many.
Status try_whole_through_micro_batches(SearchState& state) {
  constexpr int kLeft = 2;  // parts, for what is gathered ahead
  const Chain from = state.best().chain;
  const std::optional<base::Bytes>& budget = state.options().memory();
  if (!budget || !state.score().fits || !state.keeps_through_micro_batches(from)) return {};
  DC_ASSIGN_OR_RETURN(const int64_t least, state.trials().steps().least_live(from));
  const int64_t all = state.parameter_bytes(), part = std::max<int64_t>(1, all / kWholeParts);
  const int parts =
      static_cast<int>(std::clamp<int64_t>((budget->v - least) / part - kLeft, 0, kWholeParts));
  const auto try_part = [&](int some) -> Result<MaybeScore> {
    return some > 0 ? state.try_whole(with_whole_part(from, some, all)) : MaybeScore();
  };
  DC_ASSIGN_OR_RETURN(const MaybeScore most, try_part(parts));
  if (most && !most->fits) {
    const int missing = static_cast<int>((most->bytes - budget->v + part - 1) / part);
    DC_RETURN_IF_ERROR(try_part(parts - missing - kLeft).status());
  }
  DC_RETURN_IF_ERROR(try_part(parts / 2).status());
  return try_all_activations(state);
}

}  // namespace

Status try_joint_starts(SearchState& state) {
  Trials& trials = state.trials();
  const auto try_one = [&](const Chain& chain) -> Status {
    if (chain.empty() || (!state.best().chain.empty() && trials.done())) return {};
    return trials.try_candidate(trials.whole(chain)).status();
  };
  for (const std::string_view text : kJointStarts) {
    DC_ASSIGN_OR_RETURN(const Chain chain, state.as_asked(passes::parse_passes(text)));
    // Otherwise it is the first.
    if (asks_budget(chain) && state.options().recompute != passes::Recompute::Auto) continue;
    if (asks_budget(chain) && state.score().fits) {
      DC_ASSIGN_OR_RETURN(const bool tight, state.is_tight(chain));
      if (tight) continue;
    }
    DC_RETURN_IF_ERROR(try_one(chain));
  }
  // With parameters whole through all micro-batches it is tried behind these.
  if (!state.keeps_through_micro_batches(state.best().chain) || !state.options().memory())
    DC_RETURN_IF_ERROR(try_all_activations(state));
  const auto try_fusions_of = [&](const Chain& from) -> Status {
    if (from.empty()) return {};
    for (const Chain& other : state.fused_otherwise(from)) {
      if (state.were_alike(fusion_of(from), fusion_of(other))) {
        trials.count_as_tried(other);
      } else {
        DC_RETURN_IF_ERROR(try_one(other));
      }
    }
    state.forget_fusions();
    for (const size_t fusion : state.fusions()) {
      const std::optional<Score> score = trials.latest(fused(from, fusion));
      if (score && score->fits) state.note_fusion(fusion, score->time);
    }
    return {};
  };
  // Where nothing fits, the smallest is no guide: the first makes all again.
  if (!state.score().fits) {
    DC_ASSIGN_OR_RETURN(const Chain first, state.as_asked(passes::parse_passes(kJointStarts[0])));
    DC_RETURN_IF_ERROR(try_fusions_of(first));
  }
  DC_RETURN_IF_ERROR(try_fusions_of(state.best().chain));
  // Collectives grouped in the other way too, with operators fused as the best has them.
  for (const std::string_view text : kAllMadeAgain) {
    DC_ASSIGN_OR_RETURN(const Chain chain, state.as_asked(passes::parse_passes(text)));
    DC_RETURN_IF_ERROR(try_one(fused(chain, fusion_of(state.best().chain))));
  }
  return try_whole_through_micro_batches(state);
}

Status try_offload_starts(SearchState& state) {
  if (!state.options().offload_space) return {};
  DC_RETURN_IF_ERROR(try_each(state, kOffloadStarts));
  return try_fusions(state);
}

Status try_other_starts(SearchState& state) {
  DC_RETURN_IF_ERROR(try_each(state, kStarts));
  if (state.options().offload_space) DC_RETURN_IF_ERROR(try_each(state, kOffloadStarts));
  return try_fusions(state);
}

}  // namespace dc::search
