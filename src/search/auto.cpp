#include "src/search/auto.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "src/base/text.h"
#include "src/search/certificate.h"
#include "src/search/chains.h"
#include "src/search/moves.h"
#include "src/search/scheduled_steps.h"
#include "src/search/starts.h"
#include "src/sim/simulate.h"

namespace dc::search {
namespace {

using base::Nanos;
using base::Result;
using base::Status;
using passes::Chain;

// What a schedule costs. `fits`: within the budget.
struct Score {
  Nanos time, communication;
  int64_t bytes = 0;
  bool fits = false;

  // In the same time (to one part in a thousand) less communication wins, then less memory.
  bool better_than(const Score& other) const {
    if (fits != other.fits) return fits;
    if (!fits) return bytes < other.bytes;
    if (differ(time.v, other.time.v)) return time < other.time;
    if (differ(communication.v, other.communication.v)) return communication < other.communication;
    return differ(bytes, other.bytes) && bytes < other.bytes;
  }
  static bool differ(int64_t a, int64_t b) { return std::abs(a - b) > std::max(a, b) / 1000; }
};

using MaybeScore = std::optional<Score>;

int64_t bytes_of_parameters(const ir::Step& step) {
  int64_t bytes = 0;
  for (const ir::Parameter& parameter : step.parameters)
    bytes += parameter.numel() * base::byte_size(parameter.dtype);
  return bytes;
}

class Search {
 public:
  Search(const ir::Step& imported, const passes::Options& options, const cost::CostModel& cost,
         const SearchOptions& search)
      : imported_(imported),
        options_(options),
        cost_(cost),
        search_(search),
        effort_(search.effort - kept_for_joint(search.effort) - kept_for_baselines(search.effort)),
        parameter_bytes_(bytes_of_parameters(imported)),
        steps_(imported, options_, cost) {}

  Result<SearchResult> run() {
    DC_RETURN_IF_ERROR(start_from_named_chains());
    DC_RETURN_IF_ERROR(find_bound());
    DC_RETURN_IF_ERROR(start_from_all_passes());
    DC_RETURN_IF_ERROR(descend());
    DC_RETURN_IF_ERROR(try_baselines());
    DC_RETURN_IF_ERROR(go_on_from_earlier_plan());
    DC_RETURN_IF_ERROR(decide_jointly());
    if (best_.chain.empty()) return first_error_;
    SearchResult found{best_.chain, options_,   score_.time, bound_,   score_.fits,
                       named_,      simulated_, cut_short_,  refused_, earlier_};
    found.options.budgets[ir::Space::Device] = best_.planned;
    return found;
  }

 private:
  // The best of them is what any result must beat. Those that need a little too much are then made
  // to fit.
  Status start_from_named_chains() {
    std::vector<std::pair<Chain, Score>> too_large;
    for (const NamedChain& named : named_chains()) {
      if (!best_.chain.empty() && out_of_effort()) break;
      DC_ASSIGN_OR_RETURN(const Chain chain, find_chain(named.name));
      if (!options_.offload_space && std::any_of(chain.begin(), chain.end(), offloads)) continue;
      if (!has_hosts(imported_, options_) &&
          std::any_of(chain.begin(), chain.end(), splits_by_host))
        continue;
      DC_ASSIGN_OR_RETURN(const MaybeScore score, try_candidate(whole(chain), 0));
      steps_.keep_stages_of(std::array{best_.chain, chain});
      if (score && !score->fits) too_large.emplace_back(chain, *score);
    }
    std::stable_sort(too_large.begin(), too_large.end(),
                     [](const auto& a, const auto& b) { return a.second.time < b.second.time; });
    for (const auto& [chain, score] : too_large) {
      if (score_.fits && score.time >= score_.time) break;
      steps_.keep_stages_of(std::array{best_.chain, chain});
      DC_RETURN_IF_ERROR(plan_for_less(whole(chain), score, INT64_MAX));
    }
    for (const NamedChain& named : named_chains()) {
      if (score_.fits && passes::print(best_.chain) == named.passes)
        named_ = {{std::string(named.name), score_.time}};
    }
    return recompute_all_in(too_large);
  }

  // The fastest of what needs too much, with only the inputs of blocks kept.
  Status recompute_all_in(std::span<const std::pair<Chain, Score>> too_large) {
    for (const auto& [chain, score] :
         too_large.first(std::min(kMostRecomputed, too_large.size()))) {
      if (out_of_effort() || (score_.fits && score.time >= score_.time)) break;
      if (!find_call(chain, "recompute")) continue;
      steps_.keep_stages_of(std::array{best_.chain, chain});
      DC_ASSIGN_OR_RETURN(const RecomputeMoves moves, recompute_moves(chain));
      if (moves.range.most > moves.range.least)
        DC_RETURN_IF_ERROR(try_candidate(whole(moves.at(chain, 0))).status());
    }
    return {};
  }

  // A search that ends with the first schedule that fits asks for none.
  Status find_bound() {
    if (search_.first_fit) return {};
    passes::Options options = options_;
    if (search_.budget) options.budgets[ir::Space::Device] = search_.budget;
    const Result<bound::LowerBound> found = certificate(steps_, imported_, options, cost_);
    if (!found.ok()) return left_out({}, found.status());
    bound_ = found->time;
    return {};
  }

  // Those of others are no starts, but nothing that has a name may be faster than the result. One
  // that cannot be made for this step is left aside.
  Status try_baselines() {
    effort_ = search_.effort;
    for (const NamedChain& named : baseline_chains()) {
      if (out_of_effort() || best_.chain.empty()) return {};
      DC_ASSIGN_OR_RETURN(const Chain chain, find_chain(named.name));
      if (!options_.offload_space && std::any_of(chain.begin(), chain.end(), offloads)) continue;
      steps_.keep_stages_of(std::array{best_.chain, chain});
      (void)try_candidate(whole(chain));
    }
    return {};
  }

  static int kept_for_baselines(int effort) {
    const int each = 2 * static_cast<int>(baseline_chains().size());  // the second plans for less
    return effort > 4 * each ? each : 0;
  }

  // Last and whatever the effort: so the result is slower neither than without it nor than this
  // chain. If it wins, the search goes on from it for half the effort. A chain that does not work
  // for this step and its ranks is left aside.
  Status go_on_from_earlier_plan() {
    if (!search_.earlier || (search_.first_fit && score_.fits)) return {};
    const auto& [plan, candidate] = *search_.earlier;
    if (!options_.offload_space &&
        std::any_of(candidate.chain.begin(), candidate.chain.end(), offloads)) {
      earlier_ = {plan, "its chain offloads, which needs --offload-space", {}, false, false};
      return {};
    }
    const Candidate before = std::exchange(best_, {});
    const Score score_before = std::exchange(score_, {});
    steps_.keep_stages_of(std::array{before.chain, candidate.chain});
    effort_ = simulated_ + std::max(search_.effort / 2, kLeastMore);
    const Status tried = try_earlier(candidate);
    earlier_ = {plan, "", score_.time, score_.fits, false};
    if (best_.chain.empty())
      earlier_->refused = tried.ok() ? "a bug in dcc, in a pass of its chain" : tried.sentence();
    const bool both_fit = score_.fits && score_before.fits;
    const bool is_better =
        both_fit ? score_.time < score_before.time : score_.better_than(score_before);
    earlier_->wins = !best_.chain.empty() && (before.chain.empty() || is_better);
    if (!earlier_->wins) {
      best_ = before;
      score_ = score_before;
      return {};
    }
    if (score_.fits) slowest_ = score_.time;
    return descend();
  }

  // As if nothing had been tried.
  Status try_earlier(const Candidate& earlier) {
    const std::string text = passes::print(earlier.chain);
    std::erase_if(tried_, [&](const auto& one) { return one.first == text; });
    if (earlier.planned && options_.memory() && *earlier.planned < *options_.memory()) {
      DC_RETURN_IF_ERROR(try_candidate(earlier).status());
      if (score_.fits) slowest_ = score_.time;
    }
    return try_candidate(whole(earlier.chain)).status();
  }

  Status start_from_all_passes() {
    for (const std::string_view prefix : {std::string_view(), kByHost}) {
      if (!prefix.empty() && !has_hosts(imported_, options_)) break;
      for (const Start& start : kStarts) DC_RETURN_IF_ERROR(start_from(prefix, start));
      if (!options_.offload_space) continue;
      for (const Start& start : kOffloadStarts) DC_RETURN_IF_ERROR(start_from(prefix, start));
    }
    return {};
  }

  // Chains with keep-jointly: some starts, then the best chain so far, each with few exchanges. If
  // one of them wins, other passes are tried with it. At the end the best is tried with many.
  Status decide_jointly() {
    if (best_.chain.empty() || search_.first_fit) return {};
    effort_ = simulated_ + kept_for_joint(search_.effort);
    for (const std::string_view chain : kJointStarts) {
      if (done()) return {};
      DC_ASSIGN_OR_RETURN(const Chain start, passes::parse_passes(chain));
      steps_.keep_stages_of(std::array{best_.chain, start});
      DC_RETURN_IF_ERROR(try_candidate(whole(start)).status());
    }
    if (!find_call(best_.chain, "recompute") || done()) return {};
    DC_RETURN_IF_ERROR(
        try_candidate({jointly(best_.chain, kFirstExchanges), best_.planned}).status());
    if (find_call(best_.chain, "keep-jointly")) DC_RETURN_IF_ERROR(change_passes().status());
    if (is_at_bound()) return {};
    return try_candidate({jointly(best_.chain, kLastExchanges), best_.planned}).status();
  }

  static int kept_for_joint(int effort) { return effort / 10; }

  // With as much recomputed as the budget asks, all that may be, and half of that.
  Status start_from(std::string_view prefix, const Start& start) {
    if (out_of_effort()) return {};
    const std::string text = std::string(prefix).append(start.begin).append(start.rest);
    DC_ASSIGN_OR_RETURN(const Chain chain, passes::parse_passes(text));
    steps_.keep_stages_of(std::array{best_.chain, chain});
    DC_RETURN_IF_ERROR(try_candidate(whole(chain)).status());
    DC_ASSIGN_OR_RETURN(const RecomputeMoves moves, recompute_moves(chain));
    if (!moves.pays() || out_of_effort()) return {};
    DC_RETURN_IF_ERROR(try_candidate(whole(moves.at(chain, 0))).status());
    if (out_of_effort()) return {};
    return try_candidate(whole(moves.at(chain, moves.last_part() / 2))).status();
  }

  // Changes one decision at a time while that helps; then goes on from the next best schedules.
  Status descend() {
    if (best_.chain.empty()) return {};
    DC_RETURN_IF_ERROR(make_faster_ones_fit());
    steps_.keep_stages_of(std::array{best_.chain});
    int step = kRecomputeParts / 4;
    while (!done()) {
      DC_RETURN_IF_ERROR(recompute_otherwise(step));
      step = kRecomputeParts / 16;
      DC_ASSIGN_OR_RETURN(bool improved, change_passes());
      while (!improved && !done()) {
        const std::optional<Candidate> next = next_to_expand();
        if (!next) return {};
        const Candidate before = best_;
        DC_RETURN_IF_ERROR(expand(*next));
        improved = best_ != before;
      }
    }
    return {};
  }

  // What is much faster than the best but needs a little too much: one pass more or less, or of
  // another size, may make it fit.
  Status make_faster_ones_fit() {
    for (int i = 0; i < kMostTooLarge; ++i) {
      const auto fastest = std::min_element(
          too_large_.begin(), too_large_.end(),
          [](const auto& a, const auto& b) { return a.first.time < b.first.time; });
      if (fastest == too_large_.end()) return {};
      const Nanos time = fastest->first.time;
      const Candidate from = fastest->second;
      const auto is_near = [&] { return score_.fits && score_.time.v / kNear * 100 <= time.v; };
      if (is_near()) return {};
      std::erase_if(too_large_, [&](const auto& one) { return one.second.chain == from.chain; });
      steps_.keep_stages_of(std::array{best_.chain, from.chain});
      for (const passes::Pass* pass : changeable_passes(options_)) {
        for (const Chain& other : changed(from.chain, *pass, parameter_bytes_)) {
          if (done() || is_near()) return {};
          DC_RETURN_IF_ERROR(try_candidate({other, from.planned}, 0).status());
        }
      }
    }
    return {};
  }

  // The best that fits and whose changes were not all tried, if it is near the best.
  std::optional<Candidate> next_to_expand() {
    const auto found =
        std::min_element(waiting_.begin(), waiting_.end(),
                         [](const auto& a, const auto& b) { return a.first.better_than(b.first); });
    if (found == waiting_.end() || found->first.time.v > score_.time.v / 100 * kNear) return {};
    Candidate next = std::move(found->second);
    waiting_.erase(found);
    return next;
  }

  // Tries all that is one decision away: a part of recomputation more or less, passes that plan for
  // less, a pass more or less or of another size.
  Status expand(const Candidate& from) {
    const auto next = [&](const Candidate& candidate) -> Status {
      return done() ? Status() : try_candidate(candidate).status();
    };
    DC_ASSIGN_OR_RETURN(const RecomputeMoves moves, recompute_moves(from.chain));
    if (moves.pays() && find_call(from.chain, "recompute")) {
      const int now = moves.part_of(moves.bytes_of(from.chain));
      for (const int part : {now - kFinestStep, now + kFinestStep}) {
        if (part < 0 || part > moves.last_part()) continue;
        DC_RETURN_IF_ERROR(next({moves.at(from.chain, part), from.planned}));
      }
    }
    if (from.planned) {
      for (const int64_t part : {64, 32, 16})
        DC_RETURN_IF_ERROR(
            next({from.chain, base::Bytes{from.planned->v - from.planned->v / part}}));
    }
    for (const passes::Pass* pass : changeable_passes(options_)) {
      for (const Chain& other : changed(from.chain, *pass, parameter_bytes_))
        DC_RETURN_IF_ERROR(next({other, from.planned}));
    }
    return {};
  }

  // More or less recomputed, in ever smaller steps.
  Status recompute_otherwise(int step) {
    DC_ASSIGN_OR_RETURN(const RecomputeMoves moves, recompute_moves(best_.chain));
    if (!moves.pays() || !find_call(best_.chain, "recompute")) return {};
    while (step >= kFinestStep && !done()) {
      const Candidate before = best_;
      const int now = moves.part_of(moves.bytes_of(before.chain));
      for (const int part : {now - step, now + step}) {
        if (done() || part < 0 || part > moves.last_part()) continue;
        DC_RETURN_IF_ERROR(try_candidate({moves.at(before.chain, part), before.planned}).status());
        if (best_ != before) break;
      }
      if (best_ == before) step /= 2;
    }
    return {};
  }

  // A pass more or less, or another size: pass after pass, until none helps.
  Result<bool> change_passes() {
    const Candidate first = best_;
    const std::vector<const passes::Pass*> passes = changeable_passes(options_);
    size_t at = 0, in_vain = 0;
    while (in_vain < passes.size()) {
      const Candidate before = best_;
      for (const Chain& other : changed(before.chain, *passes[at], parameter_bytes_)) {
        if (done()) return best_ != first;
        DC_RETURN_IF_ERROR(try_candidate({other, before.planned}).status());
        if (best_ != before) break;  // what helped is tried further
      }
      const bool helped = best_ != before;
      in_vain = helped ? 0 : in_vain + 1;
      if (!helped) at = (at + 1) % passes.size();
    }
    return best_ != first;
  }

  // Empty ones where nothing limits the memory, or where the user or keep-jointly says what is
  // recomputed.
  Result<RecomputeMoves> recompute_moves(const Chain& chain) {
    if (!options_.memory() || options_.recompute != passes::Recompute::Auto ||
        find_call(chain, "keep-jointly"))
      return RecomputeMoves{};
    Result<RecomputeRange> range = steps_.recompute_range(chain);
    if (!range.ok()) {
      DC_RETURN_IF_ERROR(left_out(chain, range.status()));
      return RecomputeMoves{};
    }
    return RecomputeMoves{*range, options_.memory()->v,
                          std::any_of(chain.begin(), chain.end(), offloads)};
  }

  bool out_of_effort() {
    cut_short_ = cut_short_ || (search_.out_of_time && search_.out_of_time());
    const bool is_enough = search_.first_fit && score_.fits;
    return is_enough || cut_short_ || simulated_ >= effort_;
  }

  // Within one part in a thousand of the bound there is nothing left to find.
  bool is_at_bound() const { return score_.fits && score_.time.v <= bound_.v + bound_.v / 1000; }
  bool done() { return out_of_effort() || is_at_bound(); }

  // The chain, planned for all of the budget.
  Candidate whole(const Chain& chain) const { return {chain, options_.memory()}; }

  // Takes the candidate as the best if it is. One that would be but for its memory is made again by
  // passes that plan for less. Empty if the chain was left out or the candidate is known. `excess`:
  // bytes above the budget of the one that this one plans for less than; 0: no more tries.
  Result<MaybeScore> try_candidate(const Candidate& candidate, int64_t excess = INT64_MAX) {
    const std::string text = passes::print(candidate.chain);
    if (search_.left_out.contains(text)) return MaybeScore();
    if (!tried_.insert({text, candidate.planned.value_or(base::Bytes{-1}).v}).second)
      return MaybeScore();
    const Result<bool> hopeless = state_alone_is_too_large(candidate.chain);
    if (!hopeless.ok()) return nothing_of(candidate.chain, hopeless.status());
    if (*hopeless) return MaybeScore();
    ++simulated_;
    const Result<ir::Step> made = steps_.made(candidate);
    if (!made.ok()) return nothing_of(candidate.chain, made.status());
    Score score = evaluate(*made);
    const bool is_shorter = best_.chain.empty() || !score_.fits || score.time < score_.time;
    if (options_.memory() && score.fits && wins(score)) {
      if (const Status laid = lay_out(*made, score); !laid.ok())
        return nothing_of(candidate.chain, laid);
    }
    if (wins(score)) {
      // Only what would be the result is verified: that is a few of many.
      if (const Status sound = ir::verify(*made, made->stage); !sound.ok())
        return nothing_of(candidate.chain, sound);
      best_ = candidate;
      score_ = score;
    }
    if (score.fits) least_ = std::min(least_, score.time);
    // What costs the same is taken for the same schedule: many changes change nothing.
    if (score.fits && costs_.insert({score.time.v, score.communication.v, score.bytes}).second)
      waiting_.emplace_back(score, candidate);
    if (!score.fits && score.bytes / kLittleMore <= options_.memory()->v / (kLittleMore - 1))
      too_large_.emplace_back(score, candidate);
    if (!score.fits && is_shorter) DC_RETURN_IF_ERROR(plan_for_less(candidate, score, excess));
    return MaybeScore(score);
  }

  bool wins(const Score& score) const {
    if (best_.chain.empty()) return true;
    // Several ties in turn must not add up.
    const bool is_slow = score.time > slowest_ || Score::differ(score.time.v, least_.v);
    return score.better_than(score_) && !(score.fits && is_slow && score.time > least_);
  }

  // Then it needs more than the best so far, whatever the passes do.
  Result<bool> state_alone_is_too_large(const Chain& chain) {
    if (!options_.memory() || best_.chain.empty()) return false;
    if (std::any_of(chain.begin(), chain.end(), offloads)) return false;
    DC_ASSIGN_OR_RETURN(const int64_t bytes, steps_.state_bytes(chain));
    return bytes > (score_.fits ? options_.memory()->v : score_.bytes);
  }

  // Until that no longer helps, or nothing can be expected to.
  Status plan_for_less(const Candidate& candidate, const Score& score, int64_t excess_before) {
    const int64_t budget = options_.memory()->v, excess = score.bytes - budget;
    if (out_of_effort() || excess <= 0 || excess > excess_before / 2) return {};
    // The second time twice as much: addresses do not follow live bytes one to one.
    const int64_t less =
        std::max(excess / 8 * (excess_before == INT64_MAX ? 9 : 16), budget / kLeastLess);
    if (less >= candidate.planned->v) return {};
    return try_candidate({candidate.chain, base::Bytes{candidate.planned->v - less}}, excess)
        .status();
  }

  // A layout may need a little more than the largest live sum: it says so itself.
  Status lay_out(const ir::Step& step, Score& score) {
    DC_ASSIGN_OR_RETURN(const std::optional<base::Bytes> arena, steps_.arena_if_too_large(step));
    score.fits = !arena;
    if (arena) score.bytes = std::max(score.bytes, arena->v);
    return {};
  }

  Result<MaybeScore> nothing_of(const Chain& chain, const Status& why) {
    DC_RETURN_IF_ERROR(left_out(chain, why));
    return MaybeScore();
  }

  // Records an internal error, which is a bug in dcc, and returns ok: the search loses only this
  // candidate. Returns every other error: it is the model's or the user's.
  Status left_out(const Chain& chain, Status why) {
    if (why.kind() != base::ErrorKind::Internal) return why;
    why.add_context("in chain " + passes::print(chain));
    refused_.push_back(passes::print(chain) + ": " + why.code() + " " + why.sentence());
    if (first_error_.ok()) first_error_ = std::move(why);
    return {};
  }

  // `fits` is about the live bytes.
  Score evaluate(const ir::Step& step) const {
    Score score;
    const sim::StepRun run = sim::simulate(step, cost_);
    score.time = run.time;
    score.communication = run.communication;
    score.bytes = live_bytes(step, cost_);
    score.fits = !options_.memory() || score.bytes <= options_.memory()->v;
    return score;
  }

  static constexpr int64_t kLeastLess = 1024;   // part of the budget
  static constexpr int kLeastMore = 8;          // schedules that an earlier plan's chain may take
  static constexpr size_t kMostRecomputed = 3;  // named chains
  static constexpr int kFinestStep = kRecomputeParts / 32;
  static constexpr int64_t kNear = 105;      // percent of the best
  static constexpr int64_t kLittleMore = 8;  // parts, of which the budget has one less
  static constexpr int kMostTooLarge = 2;    // chains

  const ir::Step& imported_;
  passes::Options options_;
  const cost::CostModel& cost_;
  const SearchOptions& search_;
  int effort_;
  const int64_t parameter_bytes_;
  ScheduledSteps steps_;
  std::set<std::pair<std::string, int64_t>> tried_;     // and planned bytes
  std::vector<std::pair<Score, Candidate>> waiting_;    // fit; what they lead to is untried
  std::vector<std::pair<Score, Candidate>> too_large_;  // by a little
  std::set<std::array<int64_t, 3>> costs_;  // time, communication and bytes of what fits
  Candidate best_;
  Score score_;
  Nanos bound_;
  Nanos slowest_{INT64_MAX};  // that a result within the budget may be
  Nanos least_{INT64_MAX};    // of what fits
  std::optional<NamedResult> named_;
  std::optional<EarlierResult> earlier_;
  int simulated_ = 0;
  bool cut_short_ = false;
  std::vector<std::string> refused_;
  Status first_error_;
};

}  // namespace

int default_effort(const ir::Step& imported) {
  constexpr int64_t kLeast = 52, kMost = 384, kNodes = 16'000 * kLeast;
  int64_t nodes = 1;
  for (const ir::Program& program : imported.programs)
    nodes += static_cast<int64_t>(program.graph.node_count());
  return static_cast<int>(std::clamp(kNodes / nodes, kLeast, kMost));
}

Result<SearchResult> find_best(const ir::Step& imported, const passes::Options& options,
                               const cost::CostModel& cost, const SearchOptions& search) {
  using passes::ReductionOrder;
  passes::Options decided = options;
  const bool any = options.reduction_order == ReductionOrder::Any;
  if (any || options.reduction_order == ReductionOrder::ByStage)
    decided.reduction_order = ReductionOrder::PerMicroBatch;
  if (!any || imported.accumulation == 1) return Search(imported, decided, cost, search).run();
  DC_ASSIGN_OR_RETURN(SearchResult each, Search(imported, decided, cost, search).run());
  decided.reduction_order = ReductionOrder::PerStep;
  DC_ASSIGN_OR_RETURN(SearchResult once, Search(imported, decided, cost, search).run());
  const bool once_wins = once.fits && (!each.fits || once.time < each.time);
  SearchResult& best = once_wins ? once : each;
  best.simulated = once.simulated + each.simulated;
  best.bound = std::min(once.bound, each.bound);
  best.cut_short = once.cut_short || each.cut_short;
  SearchResult& other = once_wins ? each : once;
  best.refused.insert(best.refused.end(), other.refused.begin(), other.refused.end());
  return std::move(best);
}

namespace {

std::string describe(const EarlierResult& earlier) {
  const std::string plan = "plan " + earlier.plan.substr(0, 12);
  if (!earlier.refused.empty()) return "; could not start from " + plan + ": " + earlier.refused;
  return (earlier.wins ? "; went on from the chain of " : "; the chain of ") + plan +
         ", which takes " + base::format_duration(earlier.time.v) + " here" +
         (earlier.fits ? "" : ", above the budget");
}

}  // namespace

base::Remark describe(const SearchResult& found) {
  const bool once = found.options.reduction_order == passes::ReductionOrder::PerStep;
  const std::string against =
      found.named ? " against " + base::format_duration(found.named->time.v) + " of " +
                        found.named->name + ", the best named chain that fits"
                  : "; no named chain fits";
  std::string text = "simulated " + std::to_string(found.simulated) + " schedules" +
                     (found.cut_short ? ", cut short by --search-time" : "") + ": " +
                     base::format_duration(found.time.v) + against + "; bound " +
                     base::format_duration(found.bound.v) +
                     (found.refused.empty() ? ""
                                            : "; left out " + std::to_string(found.refused.size()) +
                                                  " schedules, because of bugs in dcc") +
                     (found.earlier ? describe(*found.earlier) : "") + "; reduction order " +
                     (once ? "per-step" : "per-micro-batch") + "; chain " +
                     passes::print(found.chain);
  base::Remark remark{"auto",
                      "chain-chosen",
                      {},
                      {{"simulated", found.simulated},
                       {"step_ns", found.time.v},
                       {"bound_ns", found.bound.v},
                       {"left_out", static_cast<int64_t>(found.refused.size())},
                       {"cut_short", found.cut_short ? 1 : 0}},
                      text};
  if (found.named) remark.numbers.push_back({"named_step_ns", found.named->time.v});
  if (found.earlier && found.earlier->refused.empty())
    remark.numbers.push_back({"earlier_step_ns", found.earlier->time.v});
  return remark;
}

}  // namespace dc::search
