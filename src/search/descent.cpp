#include "src/search/descent.h"

#include <algorithm>
#include <optional>
#include <span>

namespace dc::search {
namespace {

using base::Result;
using base::Status;
using passes::Chain;

constexpr int64_t kLess[] = {64, 32, 16};  // parts, of which passes plan for one less
constexpr int kFinestStep = kRecomputeParts / 32;
constexpr int kMostTooLarge = 2;         // chains
constexpr int64_t kLittleSlower = 100;   // parts of a time, of which a change adds one
constexpr int64_t kFar = 125;            // per cent of the best's time, where nothing near is left
constexpr int kMostFar = 4;              // of these
constexpr int64_t kNearOtherwise = 102;  // per cent of the best's time

// The calls that only one of both has.
std::string change_of(const Chain& from, const Chain& to) {
  std::string text;
  const auto add = [&](const Chain& all, const Chain& other, const char* sign) {
    for (const passes::PassCall& call : all) {
      if (std::find(other.begin(), other.end(), call) == other.end())
        text += sign + passes::print({call});
    }
  };
  add(from, to, "-");
  add(to, from, "+");
  return text;
}

}  // namespace

Descent::Descent(SearchState& state) : state_(state), passes_(changeable_passes(state.options())) {}

Status Descent::run() {
  if (state_.best().chain.empty()) return {};
  if (!within_) DC_RETURN_IF_ERROR(make_faster_ones_fit());
  int step = kRecomputeParts / 4;
  while (!state_.trials().done()) {
    DC_RETURN_IF_ERROR(recompute_otherwise(step));
    DC_RETURN_IF_ERROR(keep_through_micro_batches());
    step = kRecomputeParts / 16;
    DC_ASSIGN_OR_RETURN(bool improved, change_decisions());
    while (!improved && !state_.trials().done()) {
      std::optional<Candidate> next = state_.trials().next_to_expand(kNear, within_);
      if (!next && !within_ && far_++ < kMostFar) next = state_.trials().next_to_expand(kFar, {});
      if (!next) return {};
      const Candidate before = state_.best();
      DC_RETURN_IF_ERROR(expand(*next));
      improved = state_.best() != before;
    }
  }
  return {};
}

Status Descent::run_otherwise(int effort) {
  if (!state_.score().fits || state_.trials().is_at_bound()) return {};
  std::vector<Keeping> near;
  for (const Keeping other :
       {Keeping::Jointly, Keeping::Parameters, Keeping::AllActivations, Keeping::Apart}) {
    const Trial& best = state_.trials().best_of(other);
    // What costs the same as the best is the same schedule.
    if (other != keeping_of(state_.best().chain) && !best.empty() && best.score != state_.score() &&
        best.score.time.v / kNearOtherwise <= state_.score().time.v / 100)
      near.push_back(other);
  }
  const int each = near.empty() ? 0 : effort / static_cast<int>(near.size());
  for (const Keeping other : near) {
    if (each >= 2 * Trials::kWorkOfOne && !state_.is_enough())
      DC_RETURN_IF_ERROR(run_within(other, each));
  }
  return {};
}

Status Descent::run_whole(int effort) {
  Trial best;
  for (const Keeping some : {Keeping::Jointly, Keeping::Parameters, Keeping::AllActivations}) {
    const Trial& other = state_.trials().best_of(some);
    if (state_.keeps_through_micro_batches(other.candidate.chain) &&
        (best.empty() || other.score.time < best.score.time))
      best = other;
  }
  if (best.empty() || state_.trials().is_at_bound()) return {};
  Candidate from = best.candidate;
  if (state_.options().recompute == passes::Recompute::Auto)
    from.chain = with_all_activations(from.chain);
  from.chain = with_whole_part(from.chain, kWholeParts, state_.parameter_bytes());
  was_whole_ = false;
  return run_apart(from, effort);
}

Status Descent::run_within(Keeping keeping, int effort) {
  within_ = keeping;
  DC_RETURN_IF_ERROR(run_apart(state_.trials().best_of(keeping).candidate, effort));
  within_.reset();
  return {};
}

// Then the better of what it finds and the best so far is the best.
Status Descent::run_apart(const Candidate& from, int effort) {
  Trials& trials = state_.trials();
  const Trials::Aside before = trials.set_aside();
  trials.set_effort(trials.spent() + effort);
  trials.forget(from.chain);  // its layout may be unknown
  DC_RETURN_IF_ERROR(trials.try_candidate(from).status());
  for (const Chain& other : state_.fused_otherwise(from.chain))
    DC_RETURN_IF_ERROR(state_.try_next({other, from.planned}).status());
  if (state_.score().fits) DC_RETURN_IF_ERROR(run());
  trials.take_back(before);
  return {};
}

// Exchanges take what there is more evenly than other passes.
Status Descent::plan_for_less(const Candidate& from) {
  if (!from.planned) return {};
  const size_t count = find_exchanges(from.chain) ? 1 : std::size(kLess);
  for (const int64_t part : std::span(kLess).first(count)) {
    const base::Bytes less{from.planned->v - from.planned->v / part};
    DC_RETURN_IF_ERROR(state_.try_next({from.chain, less}).status());
  }
  return {};
}

// What is much faster than the best but needs a little too much: one pass more or less, or of
// another size, may make it fit.
Status Descent::make_faster_ones_fit() {
  for (int i = 0; i < kMostTooLarge; ++i) {
    const std::optional<Trial> fastest = state_.trials().take_fastest_too_large();
    if (!fastest) return {};
    const Candidate& from = fastest->candidate;
    const auto is_near = [&] {
      return state_.score().fits && state_.score().time.v / kNear * 100 <= fastest->score.time.v;
    };
    if (is_near()) return {};
    for (auto pass = passes_.rbegin(); pass != passes_.rend(); ++pass) {  // as change_decisions()
      if ((*pass)->name == "recompute") continue;  // without it even more is needed
      for (const Chain& other : changed(from.chain, **pass, state_.parameter_bytes())) {
        if (state_.trials().done() || is_near()) return {};
        DC_RETURN_IF_ERROR(state_.trials().try_if_it_may_fit({other, from.planned}).status());
      }
    }
  }
  return {};
}

// More or less recomputed, in ever smaller steps.
Status Descent::recompute_otherwise(int step) {
  DC_ASSIGN_OR_RETURN(const RecomputeMoves moves, state_.recompute_moves(state_.best().chain));
  if (!moves.pays()) return {};
  while (step >= kFinestStep && !state_.trials().done()) {
    const Candidate before = state_.best();
    const int now = moves.part_of(moves.bytes_of(before.chain));
    for (const int part : {now - step, now + step}) {
      if (part < 0 || part > moves.last_part()) continue;
      DC_RETURN_IF_ERROR(state_.try_next({moves.at(before.chain, part), before.planned}).status());
      if (state_.best() != before) break;
    }
    if (state_.best() == before) step /= 4;
  }
  return {};
}

// More or fewer parameters whole through all micro-batches, in ever smaller steps.
Status Descent::keep_through_micro_batches() {
  if (!state_.keeps_through_micro_batches(state_.best().chain)) return {};
  const int64_t bytes = state_.parameter_bytes();
  const int first = whole_part(state_.best().chain, bytes);
  const std::optional<Score> one_more =
      state_.trials().latest(with_whole_part(state_.best().chain, first + 1, bytes));
  const bool is_most = one_more && !one_more->fits;
  int step = was_whole_ || is_most ? 1 : std::max(1, first / 4);
  was_whole_ = true;
  while (step > 0 && state_.keeps_through_micro_batches(state_.best().chain) &&
         !state_.trials().done()) {
    const Candidate before = state_.best();
    const int now = whole_part(before.chain, bytes);
    for (const int part : {now + step, now - step}) {
      if (part < 0 || part > kWholeParts) continue;
      const Chain other = with_whole_part(before.chain, part, bytes);
      DC_RETURN_IF_ERROR(state_.try_next({other, before.planned}).status());
      if (state_.best() != before) break;
    }
    if (state_.best() == before) step /= 4;
  }
  return {};
}

// The most promising change of every decision, then the next of each, until none helps. First what
// passes decide last, because what comes before them is known.
Result<bool> Descent::change_decisions() {
  constexpr size_t kMostChanges = 4;  // of one decision: another size in three ways, and without
  const Candidate first = state_.best();
  for (size_t at = 0, in_vain = 0; in_vain < kMostChanges * decisions(); ++in_vain) {
    const Candidate before = state_.best();
    const std::vector<Chain> others = changes(before.chain, at % decisions());
    if (const size_t which = at / decisions(); which < others.size()) {
      if (state_.trials().done()) break;
      DC_RETURN_IF_ERROR(try_change(before, others[which]));
    }
    if (state_.best() == before) {
      at = (at + 1) % (kMostChanges * decisions());
      continue;
    }
    at %= decisions();  // what helped is tried further
    in_vain = 0;
  }
  return state_.best() != first;
}

// Tries what is one decision away: a part of recomputation more or less, passes that plan for less,
// one of the other decisions, unless that made another schedule slower, by more than a little: so
// more schedules have their turn.
Status Descent::expand(const Candidate& from) {
  DC_ASSIGN_OR_RETURN(const RecomputeMoves moves, state_.recompute_moves(from.chain));
  if (moves.pays()) {
    const int now = moves.part_of(moves.bytes_of(from.chain));
    for (const int part : {now - kFinestStep, now + kFinestStep}) {
      if (part < 0 || part > moves.last_part()) continue;
      DC_RETURN_IF_ERROR(state_.try_next({moves.at(from.chain, part), from.planned}).status());
    }
  }
  if (state_.keeps_through_micro_batches(from.chain)) {
    const int64_t bytes = state_.parameter_bytes();
    const int now = whole_part(from.chain, bytes);
    for (const int part : {now + 1, now - 1}) {
      if (part < 0 || part > kWholeParts) continue;
      const Chain other = with_whole_part(from.chain, part, bytes);
      DC_RETURN_IF_ERROR(state_.try_next({other, from.planned}).status());
    }
  }
  DC_RETURN_IF_ERROR(plan_for_less(from));
  for (size_t at = 0; at < decisions(); ++at) {
    for (const Chain& other : changes(from.chain, at)) {
      if (!slower_.contains(change_of(from.chain, other)))
        DC_RETURN_IF_ERROR(try_change(from, other));
    }
  }
  return {};
}

Status Descent::try_change(const Candidate& from, const Chain& other) {
  DC_ASSIGN_OR_RETURN(const MaybeScore score, state_.try_next({other, from.planned}));
  const std::optional<Score> before = state_.trials().latest(from.chain);
  if (score && before && score->time.v > before->time.v + before->time.v / kLittleSlower)
    slower_.insert(change_of(from.chain, other));
  return {};
}

// What memory is used for comes behind the passes about reductions: these help more often.
std::vector<Chain> Descent::changes(const Chain& chain, size_t decision) const {
  constexpr size_t kOfReductions = 3;  // separate-reductions, overlap-update, overlap-reductions
  const size_t keeping = std::min(kOfReductions, passes_.size());
  if (decision == keeping) {
    const bool decides = state_.options().recompute == passes::Recompute::Auto;
    return within_ ? std::vector<Chain>() : kept_otherwise(chain, decides);
  }
  if (const size_t at = decision < keeping ? decision + 1 : decision; at <= passes_.size())
    return changed(chain, *passes_[passes_.size() - at], state_.parameter_bytes());
  if (decision == passes_.size() + 1) return grouped_otherwise(chain, state_.parameter_bytes());
  return state_.fused_otherwise(chain);
}

}  // namespace dc::search
