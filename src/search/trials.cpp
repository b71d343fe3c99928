#include "src/search/trials.h"

#include <algorithm>

namespace dc::search {

using base::Nanos;
using base::Result;
using base::Status;
using passes::Chain;

namespace {

constexpr int64_t kLittleMore = 8;      // parts, of which the budget has one less
constexpr int64_t kLittleMissing = 64;  // parts of the budget, of which one is missing

// So many placements per node of the step count as one part of the work. In the time of a part
// there is about one per node: counted in full, layouts would end the search where little memory is
// missing, which takes many of them.
constexpr int64_t kPlacedInPart = 8;

// About the time that its passes behind `schedule` take.
int work_of(const Chain& chain) {
  int passes = 0;
  for (const passes::PassCall& call : chain) {
    if (makes_exchanges(*call.pass) || offloads(call)) return Trials::kWorkOfOne;
    if (call.pass->needs == ir::Stage::Scheduled) ++passes;
  }
  return std::clamp(passes / 2, 1, Trials::kWorkOfOne);
}

}  // namespace

bool Score::better_than(const Score& other) const {
  if (fits != other.fits) return fits;
  if (!fits) return bytes < other.bytes;
  if (differ(time.v, other.time.v)) return time < other.time;
  if (differ(communication.v, other.communication.v)) return communication < other.communication;
  return differ(bytes, other.bytes) && bytes < other.bytes;
}

Result<MaybeScore> Trials::try_once(const Candidate& candidate) {
  const std::string text = passes::print(candidate.chain);
  if (search_.left_out.contains(text)) return MaybeScore();
  if (!tried_.insert({text, candidate.planned.value_or(base::Bytes{-1}).v}).second)
    return MaybeScore();
  const Result<bool> hopeless = state_alone_is_too_large(candidate.chain);
  if (!hopeless.ok()) return nothing_of(candidate.chain, hopeless.status());
  if (*hopeless) return MaybeScore();
  ++simulated_;
  spent_ += work_of(candidate.chain);
  const int64_t placed = steps_.placed();
  const Result<ScheduleCosts> costs = steps_.costs(candidate);
  if (!costs.ok()) return nothing_of(candidate.chain, costs.status());
  Score score = score_of(*costs);
  const auto may_be_result = [&] { return wins(score) || is_fastest(score); };
  if (options_.memory() && score.fits && may_be_result()) {
    if (const Status laid = lay_out(candidate, score); !laid.ok())
      return nothing_of(candidate.chain, laid);
  }
  if (!search_.left_out.empty() && may_be_result()) {
    if (const Status sound = steps_.verify(candidate); !sound.ok())
      return nothing_of(candidate.chain, sound);
  }
  if (is_fastest(score)) fastest_ = {score, candidate};
  if (wins(score)) best_ = {score, candidate};
  steps_.forget_large();
  if (counts_layouts_)
    spent_ += static_cast<int>((steps_.placed() - placed) / (kPlacedInPart * costs->nodes));
  latest_[text] = {score, candidate};
  if (score.fits) {
    least_ = std::min(least_, score.time);
    Trial& of_alike = best_of_[static_cast<size_t>(keeping_of(candidate.chain))];
    if (of_alike.empty() || score.time < of_alike.score.time) of_alike = {score, candidate};
  }
  // What costs the same is taken for the same schedule: many changes change nothing.
  if (score.fits && costs_.insert({score.time.v, score.communication.v, score.bytes}).second)
    waiting_.push_back({score, candidate});
  if (!score.fits && score.bytes / kLittleMore <= options_.memory()->v / (kLittleMore - 1))
    too_large_.push_back({score, candidate});
  return MaybeScore(score);
}

void Trials::count_as_tried(const Chain& chain) { spent_ += work_of(chain); }

Result<MaybeScore> Trials::try_if_it_may_fit(const Candidate& candidate) {
  const Result<bool> hopeless = cannot_fit(candidate.chain);
  if (!hopeless.ok()) return nothing_of(candidate.chain, hopeless.status());
  return *hopeless ? Result<MaybeScore>(MaybeScore()) : try_once(candidate);
}

Result<MaybeScore> Trials::try_candidate(const Candidate& candidate) {
  DC_ASSIGN_OR_RETURN(const MaybeScore score, try_once(candidate));
  if (score && !score->fits) DC_RETURN_IF_ERROR(plan_for_less(candidate, *score));
  return score;
}

Status Trials::plan_for_less(const Candidate& candidate, Score score) {
  // Where little is missing, trying says as much in the same time.
  const int64_t missing = score.bytes - options_.memory()->v;
  if (!score.is_in_layout && missing > options_.memory()->v / kLittleMissing) {
    const Result<bool> hopeless = cannot_fit(candidate.chain);
    if (!hopeless.ok()) return left_out(candidate.chain, hopeless.status());
    if (*hopeless) return {};
  }
  LowerPlans lower(*options_.memory(), candidate.planned.value_or(*options_.memory()));
  while (!score.fits && !out_of_effort()) {
    if (best_.score.fits && score.time >= best_.score.time) return {};
    const std::optional<base::Bytes> planned =
        lower.next({score.bytes - options_.memory()->v, score.is_in_layout});
    if (!planned) return {};
    DC_ASSIGN_OR_RETURN(const MaybeScore next, try_once({candidate.chain, *planned}));
    if (!next) return {};
    score = *next;
  }
  return {};
}

Status Trials::try_smallest(const Chain& chain) {
  for (const auto& ask : {&Trials::state_alone_is_too_large, &Trials::cannot_fit}) {
    const Result<bool> hopeless = (this->*ask)(chain);
    if (!hopeless.ok()) return left_out(chain, hopeless.status());
    if (*hopeless) return {};
  }
  const std::optional<SmallestPlan>& smallest = smallest_.of(chain);
  if (!smallest || smallest->bytes > options_.memory()->v) return {};
  return try_once({chain, smallest->planned}).status();
}

std::optional<SmallestChain> Trials::smallest_of(const std::vector<Chain>& chains) {
  std::optional<SmallestChain> found;
  offer_smallest(chains, steps_, smallest_, options_, found);
  return found;
}

std::optional<Score> Trials::latest(const Chain& chain) const {
  const auto found = latest_.find(passes::print(chain));
  return found == latest_.end() ? std::nullopt : std::optional(found->second.score);
}

Result<bool> Trials::latest_keeps_budget(const Chain& chain) {
  const auto found = latest_.find(passes::print(chain));
  if (found == latest_.end() || !found->second.score.fits) return false;
  if (!options_.memory()) return true;
  DC_ASSIGN_OR_RETURN(const std::optional<base::Bytes> arena,
                      steps_.arena_if_too_large(found->second.candidate));
  return !arena;
}

void Trials::forget(const Chain& chain) {
  const std::string text = passes::print(chain);
  std::erase_if(tried_, [&](const auto& one) { return one.first == text; });
}

bool Trials::out_of_effort() {
  cut_short_ = cut_short_ || (search_.out_of_time && search_.out_of_time());
  const bool is_enough = search_.first_fit && score().fits;
  // What does not fit takes less time, and a search without a result is worth more.
  const int effort = score().fits ? std::min(effort_, limit_) : effort_ + effort_ / 4;
  return is_enough || cut_short_ || spent_ + kWorkOfOne > effort;
}

Trials::Aside Trials::set_aside() {
  return {std::exchange(best_, {}), std::exchange(least_, Nanos{INT64_MAX})};
}

void Trials::take_back(const Aside& aside) {
  least_ = std::min(least_, aside.least);
  const Trial found = std::exchange(best_, aside.best);
  if (!found.empty() && wins(found.score)) best_ = found;
}

std::vector<Trial> Trials::near_fastest(int64_t percent) const {
  std::vector<Trial> near;
  for (const auto& [text, trial] : latest_) {
    if (trial.score.fits && !fastest_.empty() &&
        trial.score.time.v / percent <= fastest_.score.time.v / 100)
      near.push_back(trial);
  }
  std::ranges::stable_sort(near, {}, [](const Trial& trial) { return trial.score.time; });
  return near;
}

void Trials::take_fastest() {
  if (fastest_.empty() || !best_.score.fits) return;
  const int64_t fastest = fastest_.score.time.v;
  if (best_.score.time.v > fastest + fastest / kEqualParts) best_ = fastest_;
}

std::optional<Candidate> Trials::next_to_expand(int64_t percent, std::optional<Keeping> within) {
  const auto is_left_out = [&](const Trial& one) {
    return one.score.time.v > score().time.v / 100 * percent ||
           (within && keeping_of(one.candidate.chain) != *within);
  };
  const auto is_before = [&](const Trial& a, const Trial& b) {
    if (is_left_out(a) != is_left_out(b)) return is_left_out(b);
    const int of_a = expanded_[fusion_of(a.candidate.chain)],
              of_b = expanded_[fusion_of(b.candidate.chain)];
    return of_a != of_b ? of_a < of_b : a.score.better_than(b.score);
  };
  const auto found = std::min_element(waiting_.begin(), waiting_.end(), is_before);
  if (found == waiting_.end() || is_left_out(*found)) return {};
  Candidate next = std::move(found->candidate);
  waiting_.erase(found);
  ++expanded_[fusion_of(next.chain)];
  return next;
}

std::optional<Trial> Trials::take_fastest_too_large() {
  const auto fastest =
      std::min_element(too_large_.begin(), too_large_.end(),
                       [](const Trial& a, const Trial& b) { return a.score.time < b.score.time; });
  if (fastest == too_large_.end()) return std::nullopt;
  const Trial found = *fastest;
  std::erase_if(too_large_,
                [&](const Trial& one) { return one.candidate.chain == found.candidate.chain; });
  return found;
}

Status Trials::left_out(const Chain& chain, Status why) {
  if (why.kind() != base::ErrorKind::Internal) return why;
  const std::string text = chain.empty() ? "the bound over choices" : passes::print(chain);
  why.add_context((chain.empty() ? "in " : "in chain ") + text);
  refused_.push_back(text + ": " + why.code() + " " + why.sentence());
  // What the bound cannot read no chain can lower, and the chain's own error says more.
  if (first_error_.ok() && !chain.empty()) first_error_ = std::move(why);
  return {};
}

bool Trials::wins(const Score& score) const {
  if (best_.empty()) return true;
  // Several ties in turn must not add up.
  const bool is_slow = score.time > slowest_ || Score::differ(score.time.v, least_.v);
  return score.better_than(best_.score) && !(score.fits && is_slow && score.time > least_);
}

bool Trials::is_fastest(const Score& score) const {
  return score.fits && score.time <= slowest_ &&
         (fastest_.empty() || score.time < fastest_.score.time);
}

// Then no plan of the chain fits, whatever the passes do. The first chain is tried all the same: a
// search without time for more has a result.
Result<bool> Trials::state_alone_is_too_large(const Chain& chain) {
  if (!options_.memory() || best_.empty()) return false;
  if (any_offloads(chain)) return false;
  DC_ASSIGN_OR_RETURN(const int64_t bytes, steps_.state_bytes(chain));
  return bytes > options_.memory()->v;
}

Result<bool> Trials::cannot_fit(const Chain& chain) {
  DC_ASSIGN_OR_RETURN(const int64_t bytes, steps_.least_live(chain));
  return options_.memory() && bytes > options_.memory()->v;
}

// A layout may need a little more than the largest live sum: it says so itself.
Status Trials::lay_out(const Candidate& candidate, Score& score) {
  DC_ASSIGN_OR_RETURN(const std::optional<base::Bytes> arena, steps_.arena_if_too_large(candidate));
  score.fits = !arena;
  score.is_in_layout = arena.has_value();
  if (arena) score.bytes = std::max(score.bytes, arena->v);
  return {};
}

Result<MaybeScore> Trials::nothing_of(const Chain& chain, const Status& why) {
  DC_RETURN_IF_ERROR(left_out(chain, why));
  return MaybeScore();
}

// `fits` is about the live bytes.
Score Trials::score_of(const ScheduleCosts& costs) const {
  const bool fits = !options_.memory() || costs.bytes <= options_.memory()->v;
  return {costs.time, costs.communication, costs.bytes, fits};
}

}  // namespace dc::search
