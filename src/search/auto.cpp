#include "src/search/auto.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "src/base/text.h"
#include "src/search/certificate.h"
#include "src/search/chains.h"
#include "src/search/moves.h"
#include "src/search/smallest_chain.h"
#include "src/search/starts.h"
#include "src/search/trials.h"

namespace dc::search {
namespace {

constexpr int kLeastEffort = 55, kLeastOffloading = 40;  // of default_effort()

using base::Nanos;
using base::Result;
using base::Status;
using passes::Chain;

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
        parameter_bytes_(bytes_of_parameters(imported)),
        trials_(imported, options_, cost, search) {
    trials_.set_effort(search.effort - kept_for_joint(search.effort) -
                       kept_for_baselines(search.effort) - kept_for_less(search.effort));
  }

  Result<SearchResult> run() {
    DC_RETURN_IF_ERROR(find_bound());
    if (is_out_of_reach_) find_smallest();
    if (smallest_ && smallest_->bytes > options_.memory()->v) return take_smallest();
    DC_RETURN_IF_ERROR(start_from_named_chains());
    DC_RETURN_IF_ERROR(start_from_all_passes());
    DC_RETURN_IF_ERROR(fit_any());
    DC_RETURN_IF_ERROR(descend());
    DC_RETURN_IF_ERROR(plan_best_for_less());
    DC_RETURN_IF_ERROR(try_baselines());
    DC_RETURN_IF_ERROR(go_on_from_earlier_plan());
    DC_RETURN_IF_ERROR(decide_jointly());
    DC_RETURN_IF_ERROR(try_smallest_plans());
    DC_RETURN_IF_ERROR(fuse_otherwise());
    if (best().chain.empty()) return trials_.first_error();
    if (!score().fits && !trials_.cut_short()) {
      if (!smallest_) find_smallest();
      return take_smallest();
    }
    return result();
  }

 private:
  SearchResult result() const {
    SearchResult found{best().chain,
                       options_,
                       score().time,
                       trials_.bound(),
                       score().fits,
                       named_,
                       trials_.simulated(),
                       trials_.cut_short(),
                       smallest_,
                       trials_.refused(),
                       earlier_,
                       {},
                       all_named_};
    if (const auto known = certificates_.find(fusion_of(best().chain));
        known != certificates_.end())
      found.certificate = known->second;
    found.options.budgets[ir::Space::Device] = best().planned;
    return found;
  }

  void find_smallest() { smallest_ = trials_.smallest_of(chains_with_text(imported_, options_)); }

  // Nothing keeps the budget: the smallest plan comes nearest.
  Result<SearchResult> take_smallest() {
    if (smallest_) {
      const Candidate nearest{smallest_->chain, smallest_->options.memory()};
      steps().keep_stages_of(std::array{nearest.chain});
      DC_RETURN_IF_ERROR(trials_.try_once(nearest).status());
    }
    if (best().chain.empty()) return trials_.first_error();
    return result();
  }

  ScheduledSteps& steps() { return trials_.steps(); }
  const Candidate& best() const { return trials_.best(); }
  const Score& score() const { return trials_.score(); }

  // The best of them is what any result must beat. Those that need too much are then made to fit,
  // as the driver makes one that the user names.
  Status start_from_named_chains() {
    std::vector<std::pair<Chain, Score>> too_large;
    for (const NamedChain& named : named_chains()) {
      if (!best().chain.empty() && trials_.out_of_effort()) {
        all_named_ = false;
        break;
      }
      DC_ASSIGN_OR_RETURN(const Chain chain, as_asked(find_chain(named.name)));
      if (!may_run(chain, imported_, options_)) continue;
      DC_ASSIGN_OR_RETURN(const MaybeScore score, trials_.try_once(trials_.whole(chain)));
      steps().keep_stages_of(std::array{best().chain, chain});
      if (!score || score->fits) continue;
      too_large.emplace_back(chain, *score);
      too_large_.emplace_back(named.name, chain);
    }
    std::stable_sort(too_large.begin(), too_large.end(),
                     [](const auto& a, const auto& b) { return a.second.time < b.second.time; });
    // What costs the same is the same schedule: less memory finds no difference.
    too_large.erase(std::unique(too_large.begin(), too_large.end(),
                                [](const auto& a, const auto& b) { return a.second == b.second; }),
                    too_large.end());
    DC_RETURN_IF_ERROR(start_jointly());
    for (const auto& [chain, score] : too_large) {
      if (!may_win(score)) break;
      steps().keep_stages_of(std::array{best().chain, chain});
      DC_RETURN_IF_ERROR(trials_.plan_for_less(trials_.whole(chain), score));
    }
    for (const NamedChain& named : named_chains()) {
      if (score().fits && passes::print(best().chain) == named.passes)
        named_ = {{std::string(named.name), score().time}};
    }
    return recompute_all_in(too_large);
  }

  // Of chains that need too much as they are. Each takes a dozen schedules, so they come last: few
  // were faster than the best by then, when they gave up less.
  Status try_smallest_plans() {
    if (score().fits && !all_named_) return {};  // the effort is not for more
    for (const auto& [name, chain] : too_large_) {
      const std::optional<Score> latest = trials_.latest(chain);
      if (!latest || latest->fits || !may_win(*latest) || is_enough()) continue;
      steps().keep_stages_of(std::array{best().chain, chain});
      DC_RETURN_IF_ERROR(trials_.try_smallest(chain));
      if (score().fits && best().chain == chain) named_ = {{std::string(name), score().time}};
    }
    return {};
  }

  bool is_enough() const { return trials_.cut_short() || (search_.first_fit && score().fits); }
  // Schedules of a large model: not all that might help is tried.
  bool is_dear() const { return search_.effort <= kLeastEffort; }
  // From what decides recomputation jointly: another part of it does not make up for so much.
  bool is_far(const Score& other) const {
    return is_dear() && score().fits && find_call(best().chain, "keep-jointly") &&
           other.time.v / kNear > score().time.v / 100;
  }

  // Only native kernels are fused.
  std::vector<size_t> fusions() const {
    if (search_.fusion) return {*search_.fusion};
    if (options_.providers == passes::Providers::Aten) return {0};
    return {0, 1, 2};
  }
  Result<Chain> as_asked(Result<Chain> chain) const {
    return chain.ok() && search_.fusion ? fused(*chain, *search_.fusion) : std::move(chain);
  }

  bool may_win(const Score& other) const { return !score().fits || other.time < score().time; }

  // Where nothing fits yet, the smallest plans of all that has a text.
  Status fit_any() {
    if (!options_.memory()) return {};
    for (const Chain& text : chains_with_text(imported_, options_)) {
      if (score().fits) return {};
      DC_ASSIGN_OR_RETURN(const Chain chain, as_asked(text));
      steps().keep_stages_of(std::array{best().chain, chain});
      DC_RETURN_IF_ERROR(trials_.try_smallest(chain));
    }
    return {};
  }

  // The fastest of what needs too much, with only the inputs of blocks kept.
  Status recompute_all_in(std::span<const std::pair<Chain, Score>> too_large) {
    for (const auto& [chain, score] :
         too_large.first(std::min(kMostRecomputed, too_large.size()))) {
      if (trials_.out_of_effort() || !may_win(score)) break;
      if (!find_call(chain, "recompute")) continue;
      steps().keep_stages_of(std::array{best().chain, chain});
      DC_ASSIGN_OR_RETURN(const RecomputeMoves moves, recompute_moves(chain));
      if (moves.range.most > moves.range.least)
        DC_RETURN_IF_ERROR(trials_.try_candidate(trials_.whole(moves.at(chain, 0))).status());
    }
    return {};
  }

  // A search that ends with the first schedule that fits asks for none.
  Status find_bound() {
    if (search_.first_fit) return {};
    passes::Options options = options_;
    if (search_.budget) options.budgets[ir::Space::Device] = search_.budget;
    Nanos least{INT64_MAX};
    bool is_reached = false;
    for (const size_t fusion : fusions()) {
      Result<bound::LowerBound> found = certificate(steps(), imported_, options, cost_, fusion);
      if (!found.ok()) return trials_.left_out({}, found.status());
      least = std::min(least, found->time);
      is_reached = is_reached || !found->is_out_of_reach;
      certificates_[fusion] = std::move(*found);
    }
    trials_.set_bound(least);
    is_out_of_reach_ = !is_reached;
    return {};
  }

  // What passes make of a budget is not smooth: less may be more. A descent that its effort ended
  // has not tried that with the best.
  Status plan_best_for_less() {
    if (best().chain.empty() || !best().planned || !score().fits) return {};
    trials_.set_effort(trials_.simulated() + kept_for_less(search_.effort));
    return expand_less(best());
  }

  static int kept_for_less(int effort) {
    constexpr int kEach = static_cast<int>(std::size(kLess));
    return effort > 8 * kEach ? kEach : 0;
  }

  // Those of others are no starts, but nothing that has a name may be faster than the result. One
  // that cannot be made for this step is left aside.
  Status try_baselines() {
    trials_.set_effort(search_.effort);
    for (const NamedChain& named : baseline_chains()) {
      if (trials_.out_of_effort() || best().chain.empty()) {
        all_named_ = false;
        return {};
      }
      DC_ASSIGN_OR_RETURN(const Chain chain, as_asked(find_chain(named.name)));
      if (!may_run(chain, imported_, options_)) continue;
      steps().keep_stages_of(std::array{best().chain, chain});
      const Result<MaybeScore> tried = trials_.try_candidate(trials_.whole(chain));
      if (tried.ok() && *tried && (*tried)->fits && (!named_ || (*tried)->time < named_->time))
        named_ = {{std::string(named.name), (*tried)->time}};
      if (tried.ok() && *tried && !(*tried)->fits) too_large_.emplace_back(named.name, chain);
      if (score().fits && passes::print(best().chain) == named.passes)
        named_ = {{std::string(named.name), score().time}};
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
    if (!search_.earlier || (search_.first_fit && score().fits)) return {};
    const auto& [plan, candidate] = *search_.earlier;
    if (!options_.offload_space &&
        std::any_of(candidate.chain.begin(), candidate.chain.end(), offloads)) {
      earlier_ = {plan, "its chain offloads, which needs --offload-space", {}, false, false};
      return {};
    }
    const Trial before = trials_.exchange_best({});
    steps().keep_stages_of(std::array{before.candidate.chain, candidate.chain});
    trials_.set_effort(trials_.simulated() + std::max(search_.effort / 2, kLeastMore));
    const Status tried = try_earlier(candidate);
    earlier_ = {plan, "", score().time, score().fits, false};
    if (best().chain.empty())
      earlier_->refused = tried.ok() ? "a bug in dcc, in a pass of its chain" : tried.sentence();
    const bool both_fit = score().fits && before.score.fits;
    const bool is_better =
        both_fit ? score().time < before.score.time : score().better_than(before.score);
    earlier_->wins = !best().chain.empty() && (before.empty() || is_better);
    if (!earlier_->wins) {
      trials_.exchange_best(before);
      return {};
    }
    if (score().fits) trials_.set_slowest(score().time);
    return descend();
  }

  // As if nothing had been tried.
  Status try_earlier(const Candidate& earlier) {
    trials_.forget(earlier.chain);
    if (earlier.planned && options_.memory() && *earlier.planned < *options_.memory()) {
      DC_RETURN_IF_ERROR(trials_.try_candidate(earlier).status());
      if (score().fits) trials_.set_slowest(score().time);
    }
    return trials_.try_candidate(trials_.whole(earlier.chain)).status();
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
    if (best().chain.empty() || search_.first_fit) return {};
    trials_.set_effort(trials_.simulated() + kept_for_joint(search_.effort));
    DC_RETURN_IF_ERROR(start_jointly());
    if (!is_dear() && !find_call(best().chain, "keep-jointly"))
      DC_RETURN_IF_ERROR(start_jointly_for_less());
    if (!find_call(best().chain, "recompute") || trials_.done()) return {};
    DC_RETURN_IF_ERROR(
        trials_.try_candidate({jointly(best().chain, kFirstExchanges), best().planned}).status());
    if (find_call(best().chain, "keep-jointly")) DC_RETURN_IF_ERROR(change_passes().status());
    if (trials_.is_at_bound()) return {};
    return trials_.try_candidate({jointly(best().chain, kLastExchanges), best().planned}).status();
  }

  static int kept_for_joint(int effort) { return effort / 10; }

  // A start of keep-jointly; its operators are fused as those of the best so far.
  Result<Chain> joint_start(std::string_view text) const {
    DC_ASSIGN_OR_RETURN(const Chain chain, as_asked(passes::parse_passes(text)));
    return best().chain.empty() ? chain : fused(chain, fusion_of(best().chain));
  }

  // Early: most schedules that need too much are slower than what these make of the memory, and
  // need not be made to fit.
  Status start_jointly() {
    if (search_.first_fit) return {};
    for (const std::string_view text : kJointStarts) {
      if (trials_.done()) return {};
      DC_ASSIGN_OR_RETURN(const Chain chain, joint_start(text));
      steps().keep_stages_of(std::array{best().chain, chain});
      DC_RETURN_IF_ERROR(trials_.try_candidate(trials_.whole(chain)).status());
    }
    return {};
  }

  // The same for smaller budgets, with the update at its place and early.
  Status start_jointly_for_less() {
    for (const std::string_view text : kJointStarts) {
      DC_ASSIGN_OR_RETURN(const Chain chain, joint_start(text));
      steps().keep_stages_of(std::array{best().chain, chain});
      DC_RETURN_IF_ERROR(expand_less(trials_.whole(chain)));
      const passes::Pass& early = *passes::find_pass("overlap-update");
      for (const Chain& other : changed(chain, early, parameter_bytes_))
        DC_RETURN_IF_ERROR(expand_less(trials_.whole(other)));
    }
    return {};
  }

  // The best so far, its element-wise operators fused in the other ways: the result is slower than
  // it in none of them. Where another way wins, what memory buys is decided again: other
  // activations wait, and other kernels make them.
  Status fuse_otherwise() {
    if (best().chain.empty() || (search_.first_fit && score().fits)) return {};
    if (search_.effort < kLeastMore) return {};
    const Candidate before = best();
    const passes::Pass& keeper = *passes::find_pass("keep-jointly");
    const Chain from = find_call(before.chain, keeper.name)
                           ? with(before.chain, keeper, kFirstExchanges)
                           : before.chain;
    trials_.set_effort(trials_.simulated() + std::max(search_.effort / 8, kLeastMore));
    for (const size_t fusion : fusions()) {
      const Chain other = fused(from, fusion);
      if (trials_.done() || fusion == fusion_of(from) || other.empty()) continue;
      steps().keep_stages_of(std::array{best().chain, other});
      DC_RETURN_IF_ERROR(trials_.try_candidate(trials_.whole(other)).status());
    }
    if (fusion_of(best().chain) == fusion_of(from)) return {};
    steps().keep_stages_of(std::array{best().chain});
    if (!find_call(best().chain, keeper.name)) {
      DC_RETURN_IF_ERROR(recompute_otherwise(kRecomputeParts / 16));
      DC_RETURN_IF_ERROR(change_passes().status());
    }
    return decide_jointly();
  }

  // With as much recomputed as the budget asks, all that may be, and half of that.
  Status start_from(std::string_view prefix, const Start& start) {
    if (trials_.out_of_effort()) return {};
    const std::string text = std::string(prefix).append(start.begin).append(start.rest);
    DC_ASSIGN_OR_RETURN(const Chain chain, as_asked(passes::parse_passes(text)));
    steps().keep_stages_of(std::array{best().chain, chain});
    DC_ASSIGN_OR_RETURN(const MaybeScore score, trials_.try_candidate(trials_.whole(chain)));
    if (score && is_far(*score)) return {};
    DC_ASSIGN_OR_RETURN(const RecomputeMoves moves, recompute_moves(chain));
    if (!moves.pays() || trials_.out_of_effort()) return {};
    DC_RETURN_IF_ERROR(trials_.try_candidate(trials_.whole(moves.at(chain, 0))).status());
    if (trials_.out_of_effort()) return {};
    return trials_.try_candidate(trials_.whole(moves.at(chain, moves.last_part() / 2))).status();
  }

  // Changes one decision at a time while that helps; then goes on from the next best schedules.
  Status descend() {
    if (best().chain.empty()) return {};
    DC_RETURN_IF_ERROR(make_faster_ones_fit());
    if (is_dear() && find_call(best().chain, "keep-jointly"))
      return {};  // decide_jointly() goes on from there
    steps().keep_stages_of(std::array{best().chain});
    int step = kRecomputeParts / 4;
    while (!trials_.done()) {
      DC_RETURN_IF_ERROR(recompute_otherwise(step));
      step = kRecomputeParts / 16;
      DC_ASSIGN_OR_RETURN(bool improved, change_passes());
      while (!improved && !trials_.done()) {
        const std::optional<Candidate> next = trials_.next_to_expand(kNear);
        if (!next) return {};
        const Candidate before = best();
        DC_RETURN_IF_ERROR(expand(*next));
        improved = best() != before;
      }
    }
    return {};
  }

  // What is much faster than the best but needs a little too much: one pass more or less, or of
  // another size, may make it fit.
  Status make_faster_ones_fit() {
    for (int i = 0; i < kMostTooLarge; ++i) {
      const std::optional<Trial> fastest = trials_.take_fastest_too_large();
      if (!fastest) return {};
      const Candidate& from = fastest->candidate;
      const auto is_near = [&] {
        return score().fits && score().time.v / kNear * 100 <= fastest->score.time.v;
      };
      if (is_near()) return {};
      steps().keep_stages_of(std::array{best().chain, from.chain});
      for (const passes::Pass* pass : changeable_passes(options_)) {
        if (pass->name == "recompute") continue;  // without it even more is needed
        for (const Chain& other : changed(from.chain, *pass, parameter_bytes_)) {
          if (trials_.done() || is_near()) return {};
          DC_RETURN_IF_ERROR(trials_.try_if_it_may_fit({other, from.planned}).status());
        }
      }
    }
    return {};
  }

  // Tries all that is one decision away: a part of recomputation more or less, passes that plan for
  // less, a pass more or less or of another size.
  Status expand(const Candidate& from) {
    const auto next = [&](const Candidate& candidate) -> Status {
      return trials_.done() ? Status() : trials_.try_candidate(candidate).status();
    };
    DC_ASSIGN_OR_RETURN(const RecomputeMoves moves, recompute_moves(from.chain));
    if (moves.pays() && find_call(from.chain, "recompute")) {
      const int now = moves.part_of(moves.bytes_of(from.chain));
      for (const int part : {now - kFinestStep, now + kFinestStep}) {
        if (part < 0 || part > moves.last_part()) continue;
        DC_RETURN_IF_ERROR(next({moves.at(from.chain, part), from.planned}));
      }
    }
    DC_RETURN_IF_ERROR(expand_less(from));
    for (const passes::Pass* pass : changeable_passes(options_)) {
      for (const Chain& other : changed(from.chain, *pass, parameter_bytes_))
        DC_RETURN_IF_ERROR(next({other, from.planned}));
    }
    return {};
  }

  // keep-jointly takes what there is more evenly than other passes.
  Status expand_less(const Candidate& from) {
    if (!from.planned) return {};
    const bool is_one_enough = is_dear() && find_call(from.chain, "keep-jointly");
    for (const int64_t part : std::span(kLess).first(is_one_enough ? 1 : std::size(kLess))) {
      if (trials_.done()) return {};
      const base::Bytes less{from.planned->v - from.planned->v / part};
      DC_RETURN_IF_ERROR(trials_.try_candidate({from.chain, less}).status());
    }
    return {};
  }

  // More or less recomputed, in ever smaller steps.
  Status recompute_otherwise(int step) {
    DC_ASSIGN_OR_RETURN(const RecomputeMoves moves, recompute_moves(best().chain));
    if (!moves.pays() || !find_call(best().chain, "recompute")) return {};
    // What leaves the device takes long to choose.
    const int finer = is_dear() && moves.chain_offloads ? 4 : 2;
    while (step >= kFinestStep && !trials_.done()) {
      const Candidate before = best();
      const int now = moves.part_of(moves.bytes_of(before.chain));
      for (const int part : {now - step, now + step}) {
        if (trials_.done() || part < 0 || part > moves.last_part()) continue;
        DC_RETURN_IF_ERROR(
            trials_.try_candidate({moves.at(before.chain, part), before.planned}).status());
        if (best() != before) break;
      }
      if (best() == before) step /= finer;
    }
    return {};
  }

  // A pass more or less, or another size: pass after pass, until none helps.
  Result<bool> change_passes() {
    const Candidate first = best();
    const std::vector<const passes::Pass*> passes = changeable_passes(options_);
    size_t at = 0, in_vain = 0;
    while (in_vain < passes.size()) {
      const Candidate before = best();
      for (const Chain& other : changed(before.chain, *passes[at], parameter_bytes_)) {
        if (trials_.done()) return best() != first;
        DC_RETURN_IF_ERROR(trials_.try_candidate({other, before.planned}).status());
        if (best() != before) break;  // what helped is tried further
      }
      const bool helped = best() != before;
      in_vain = helped ? 0 : in_vain + 1;
      if (!helped) at = (at + 1) % passes.size();
    }
    return best() != first;
  }

  // Empty ones where nothing limits the memory, or where the user or keep-jointly says what is
  // recomputed.
  Result<RecomputeMoves> recompute_moves(const Chain& chain) {
    if (!options_.memory() || options_.recompute != passes::Recompute::Auto ||
        find_call(chain, "keep-jointly"))
      return RecomputeMoves{};
    Result<RecomputeRange> range = steps().recompute_range(chain);
    if (!range.ok()) {
      DC_RETURN_IF_ERROR(trials_.left_out(chain, range.status()));
      return RecomputeMoves{};
    }
    return RecomputeMoves{*range, options_.memory()->v,
                          std::any_of(chain.begin(), chain.end(), offloads)};
  }

  static constexpr int64_t kLess[] = {64, 32, 16};  // parts, of which passes plan for one less
  static constexpr int kLeastMore = 8;          // schedules that an earlier plan's chain may take
  static constexpr size_t kMostRecomputed = 3;  // named chains
  static constexpr int kFinestStep = kRecomputeParts / 32;
  static constexpr int64_t kNear = 105;    // percent of the best
  static constexpr int kMostTooLarge = 2;  // chains

  const ir::Step& imported_;
  passes::Options options_;
  const cost::CostModel& cost_;
  const SearchOptions& search_;
  const int64_t parameter_bytes_;
  Trials trials_;
  std::optional<NamedResult> named_;
  std::optional<EarlierResult> earlier_;
  std::optional<SmallestChain> smallest_;                      // asked for where nothing fits
  std::vector<std::pair<std::string_view, Chain>> too_large_;  // named, as they are
  bool is_out_of_reach_ = false;                               // the budget, as the bound says
  std::map<size_t, bound::LowerBound> certificates_;           // by fusion
  bool all_named_ = true;
};

}  // namespace

int default_effort(const ir::Step& imported, bool may_offload) {
  const int least = may_offload ? kLeastOffloading : kLeastEffort;
  constexpr int64_t kMost = 384, kNodes = 832'000;
  int64_t nodes = 1;
  for (const ir::Program& program : imported.programs)
    nodes += static_cast<int64_t>(program.graph.node_count());
  return static_cast<int>(std::clamp<int64_t>(kNodes / nodes, least, kMost));
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
  if (other.smallest && (!best.smallest || other.smallest->bytes < best.smallest->bytes))
    best.smallest = other.smallest;
  best.refused.insert(best.refused.end(), other.refused.begin(), other.refused.end());
  return std::move(best);
}

}  // namespace dc::search
