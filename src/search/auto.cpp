#include "src/search/auto.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "src/analysis/memory.h"
#include "src/base/text.h"
#include "src/layout/allocate.h"
#include "src/search/chains.h"
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

bool offloads(const passes::PassCall& call) { return call.pass->name.starts_with("offload-"); }
bool splits_by_host(const passes::PassCall& call) { return call.pass->name == "split-by-host"; }
bool is_layout(const passes::PassCall& call) { return call.pass->gives == ir::Stage::Allocated; }

class Search {
 public:
  Search(const ir::Step& imported, const passes::Options& options, const cost::CostModel& cost,
         const SearchOptions& search)
      : imported_(imported), options_(options), cost_(cost), search_(search) {}

  Result<SearchResult> run() {
    DC_RETURN_IF_ERROR(start_from_named_chains());
    DC_RETURN_IF_ERROR(find_bound());
    for (const std::string_view prefix : {"", kByHost}) {
      for (const char* text : kStarts) {
        if (out_of_effort() || (!prefix.empty() && !has_hosts())) break;
        DC_ASSIGN_OR_RETURN(const Chain chain, passes::parse_passes(std::string(prefix) + text));
        DC_RETURN_IF_ERROR(try_chain(chain).status());
        if (!prefix.empty()) forget_stages_but(chain);
      }
    }
    if (best_.empty()) return first_error_;
    forget_stages_but(best_);
    bool improved = true;
    while (improved && !done()) {
      improved = false;
      for (const Chain& neighbour : neighbours(best_)) {
        if (done()) break;
        DC_ASSIGN_OR_RETURN(improved, try_chain(neighbour));
        if (improved) break;  // the next neighbours are those of the better chain
      }
    }
    SearchResult found{best_,       options_,         score_.time, bound_,     score_.fits,
                       best_named_, best_named_time_, simulated_,  cut_short_, refused_};
    return found;
  }

 private:
  // The best of them is what any result must beat.
  Status start_from_named_chains() {
    for (const NamedChain& named : named_chains()) {
      if (!best_.empty() && out_of_effort()) break;
      DC_ASSIGN_OR_RETURN(const Chain chain, find_chain(named.name));
      if (!options_.offload_space && std::any_of(chain.begin(), chain.end(), offloads)) continue;
      if (!has_hosts() && std::any_of(chain.begin(), chain.end(), splits_by_host)) continue;
      DC_ASSIGN_OR_RETURN(const bool better, try_chain(chain));
      forget_stages_but(chain);
      if (!better) continue;
      best_named_ = named.name;
      best_named_time_ = score_.time;
    }
    return {};
  }

  // With everything resident, no budget and perfect overlap: the busiest stream.
  Status find_bound() {
    passes::Options unlimited = options_;
    unlimited.budgets[ir::Space::Device].reset();
    for (const std::string_view prefix : {"", kByHost}) {
      if (!prefix.empty() && !has_hosts()) continue;
      DC_ASSIGN_OR_RETURN(const Chain chain,
                          passes::parse_passes(std::string(prefix) + kAllResident));
      const Result<ir::Step> step = scheduled(chain, unlimited);
      if (!step.ok()) return left_out(chain, step.status());
      const Nanos bound = sim::simulate(*step, cost_).bound;
      bound_ = prefix.empty() ? bound : std::min(bound_, bound);
    }
    return {};
  }

  // Whether there are ranks to shard inside a host and hosts to replicate across.
  bool has_hosts() const {
    const int world = imported_.mesh.world(), each = options_.ranks_per_host.value_or(0);
    return each > 1 && each < world && world % each == 0;
  }

  bool out_of_effort() {
    cut_short_ = cut_short_ || (search_.out_of_time && search_.out_of_time());
    const bool is_enough = search_.first_fit && score_.fits;
    return is_enough || cut_short_ || simulated_ >= search_.effort;
  }

  // Within one part in a thousand of the bound there is nothing left to find.
  bool done() {
    return out_of_effort() || (score_.fits && score_.time.v <= bound_.v + bound_.v / 1000);
  }

  Result<bool> try_chain(const Chain& chain) {
    const std::string text = passes::print(chain);
    if (search_.left_out.contains(text) || !tried_.insert(text).second) return false;
    ++simulated_;
    const Result<ir::Step> made = scheduled(chain, options_);
    if (!made.ok()) {
      DC_RETURN_IF_ERROR(left_out(chain, made.status()));
      return false;
    }
    const ir::Step& step = *made;
    Score score = evaluate(step);
    const auto wins = [&] { return best_.empty() || score.better_than(score_); };
    if (!wins()) return false;
    if (options_.memory() && score.fits) {
      // A layout may need a little more than the largest live sum: it says so itself.
      const Result<bool> fits = layout::fits(step, cost_, options_.budgets);
      if (!fits.ok()) {
        DC_RETURN_IF_ERROR(left_out(chain, fits.status()));
        return false;
      }
      score.fits = *fits;
      if (!wins()) return false;
    }
    // Only what would be the result is verified: that is a few of many.
    if (const Status sound = ir::verify(step, step.stage); !sound.ok()) {
      DC_RETURN_IF_ERROR(left_out(chain, sound));
      return false;
    }
    best_ = chain;
    score_ = score;
    return true;
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

  // The step before the layout. What chains begin with alike, up to recompute, is computed once.
  Result<ir::Step> scheduled(const Chain& chain, const passes::Options& options) {
    const passes::Pass* recompute = passes::find_pass("recompute");
    const auto split = std::find_if(chain.begin(), chain.end(), [&](const passes::PassCall& call) {
      return call.pass > recompute;
    });
    DC_ASSIGN_OR_RETURN(const SharedStep first, begun(Chain(chain.begin(), split), options));
    ir::Step step = *first;
    DC_RETURN_IF_ERROR(apply(step, Chain(split, chain.end()), options).status());
    return step;
  }

  using SharedStep = std::shared_ptr<const ir::Step>;

  // The step after `chain`: after the passes up to `schedule`, then after each further one.
  Result<SharedStep> begun(const Chain& chain, const passes::Options& options) {
    const std::string key = passes::print(chain) + (options.memory() ? " within the budget" : "");
    if (const auto found = prefixes_.find(key); found != prefixes_.end()) return found->second;
    Chain before = chain;
    do {
      before.pop_back();
    } while (!before.empty() && before.back().pass->gives != ir::Stage::Scheduled);
    SharedStep begin;
    if (!before.empty()) {
      DC_ASSIGN_OR_RETURN(begin, begun(before, options));
    }
    auto step = std::make_shared<ir::Step>(begin ? *begin : imported_);
    const Chain rest(chain.begin() + static_cast<std::ptrdiff_t>(before.size()), chain.end());
    DC_ASSIGN_OR_RETURN(const passes::Change change, apply(*step, rest, options));
    const bool is_new = !begin || change == passes::Change::Yes;
    return prefixes_.emplace(key, is_new ? std::move(step) : begin).first->second;
  }

  // Named chains of one stage stand side by side, and the moves leave what comes before the best
  // chain's `schedule` alone: steps of other stages than these two would only take room.
  void forget_stages_but(const Chain& chain) {
    const std::string kept[] = {stage_of(best_), stage_of(chain)};
    std::erase_if(prefixes_, [&](const auto& one) {
      return !one.first.starts_with(kept[0]) && !one.first.starts_with(kept[1]);
    });
  }
  static std::string stage_of(const Chain& chain) {
    const auto split = std::find_if(chain.begin(), chain.end(), [](const passes::PassCall& call) {
      return call.pass->needs == ir::Stage::Scheduled;
    });
    return passes::print(Chain(chain.begin(), split));
  }

  Result<passes::Change> apply(ir::Step& step, const Chain& chain,
                               const passes::Options& options) const {
    std::vector<passes::Remark> remarks;
    passes::PassContext context{cost_, options, remarks};
    context.collect_remarks = false;
    passes::Change total = passes::Change::No;
    for (const passes::PassCall& call : chain) {
      if (is_layout(call)) continue;
      DC_ASSIGN_OR_RETURN(const passes::Change change, passes::apply(call, step, context));
      if (change == passes::Change::Yes) total = change;
    }
    return total;
  }

  // `fits` is about the live bytes.
  Score evaluate(const ir::Step& step) const {
    Score score;
    const sim::StepRun run = sim::simulate(step, cost_);
    score.time = run.time;
    score.communication = run.communication;
    score.bytes = analysis::peak_memory(step, [&](const ir::Graph& graph, const ir::Node& node) {
                    return cost_.scratch(graph, node).bytes;
                  }).live.v;
    score.fits = !options_.memory() || score.bytes <= options_.memory()->v;
    return score;
  }

  // Chains that differ from `chain` in one pass: another stage, a pass more or less, another size.
  std::vector<Chain> neighbours(const Chain& chain) {
    std::vector<Chain> result;
    for (const passes::Pass& pass : passes::all_passes()) {
      if (pass.needs != ir::Stage::Scheduled || pass.gives != ir::Stage::Scheduled) continue;
      if (!options_.offload_space && offloads({&pass, {}})) continue;
      const auto at = std::find_if(chain.begin(), chain.end(), [&](const passes::PassCall& call) {
        return call.pass == &pass;
      });
      const bool present = at != chain.end();
      if (!present) {
        add(result, with(chain, pass, std::nullopt));
        continue;
      }
      if (!pass.argument.empty()) {
        const std::optional<int64_t> size = at->argument;
        const int64_t middle = size.value_or(first_size(pass));
        if (!size) add(result, with(chain, pass, middle));
        for (const int64_t other : {middle * 4, middle / 4}) add(result, with(chain, pass, other));
        if (size) add(result, with(chain, pass, std::nullopt));
      }
      const bool asked_for =
          pass.name == "recompute" && options_.recompute == passes::Recompute::Full;
      if (asked_for) continue;
      Chain without = chain;
      std::erase_if(without, [&](const passes::PassCall& call) { return call.pass == &pass; });
      add(result, without);
    }
    return result;
  }

  static Chain with(const Chain& chain, const passes::Pass& pass, std::optional<int64_t> argument) {
    Chain result = chain;
    std::erase_if(result, [&](const passes::PassCall& call) { return call.pass == &pass; });
    const auto before =
        std::find_if(result.begin(), result.end(),
                     [&](const passes::PassCall& call) { return call.pass > &pass; });
    result.insert(before, {&pass, argument});
    return result;
  }

  // A chain that parse_passes() refuses is no neighbour.
  static void add(std::vector<Chain>& list, const Chain& chain) {
    if (passes::parse_passes(passes::print(chain)).ok()) list.push_back(chain);
  }

  // Half of the parameters for what is kept, a hundredth for a bucket.
  int64_t first_size(const passes::Pass& pass) const {
    int64_t bytes = 0;
    for (const ir::Parameter& parameter : imported_.parameters)
      bytes += parameter.numel() * base::byte_size(parameter.dtype);
    return std::max<int64_t>(1, pass.name == "keep-resident" ? bytes / 2 : bytes / 100);
  }

  static constexpr const char* kByHost = "split-by-host,";
#define DC_SHARDED \
  "normalize-graph,shard-parameters=3,insert-collectives,add-update,schedule,recompute,"
#define DC_REFRESHED                                                                       \
  "insert-collectives,add-update,schedule,recompute,bucket-reductions,overlap-reductions," \
  "overlap-update,layout-arenas"
  static constexpr const char* kAllResident = DC_SHARDED "keep-resident,layout-arenas";
  // All passes at once: the search's moves then remove some.
  static constexpr const char* kStarts[] = {
      DC_SHARDED "fuse-gathers,bucket-reductions,prefetch-gathers,overlap-reductions,layout-arenas",
      DC_SHARDED
      "keep-resident,fuse-gathers,bucket-reductions,prefetch-gathers,overlap-reductions,"
      "layout-arenas",
      // Where the link is the bottleneck, memory is best used for whole parameters; gathers that
      // start early gain less, and gradients that wait for their reduction leave less memory for
      // both.
      DC_SHARDED "keep-resident,gather-by-block,overlap-reductions=1000000000,layout-arenas",
      // Whole parameters, refreshed while the next step begins.
      "normalize-graph,shard-parameters=2," DC_REFRESHED,
      // With clipping some gradients that reach all ranks early are worth more.
      "normalize-graph,shard-parameters=2,replicate-state," DC_REFRESHED,
  };
#undef DC_REFRESHED
#undef DC_SHARDED

  const ir::Step& imported_;
  passes::Options options_;
  const cost::CostModel& cost_;
  const SearchOptions& search_;
  std::map<std::string, SharedStep> prefixes_;  // by the passes that made them
  std::set<std::string> tried_;
  Chain best_;
  Score score_;
  Nanos bound_, best_named_time_;
  std::string best_named_;
  int simulated_ = 0;
  bool cut_short_ = false;
  std::vector<std::string> refused_;
  Status first_error_;
};

}  // namespace

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
  best.cut_short = once.cut_short || each.cut_short;
  SearchResult& other = once_wins ? each : once;
  best.refused.insert(best.refused.end(), other.refused.begin(), other.refused.end());
  return std::move(best);
}

base::Remark describe(const SearchResult& found) {
  const bool once = found.options.reduction_order == passes::ReductionOrder::PerStep;
  std::string text = "simulated " + std::to_string(found.simulated) + " schedules" +
                     (found.cut_short ? ", cut short by --search-time" : "") + ": " +
                     base::format_duration(found.time.v) + " against " +
                     base::format_duration(found.best_named_time.v) + " of " + found.best_named +
                     ", the best named chain; bound " + base::format_duration(found.bound.v) +
                     (found.refused.empty() ? ""
                                            : "; left out " + std::to_string(found.refused.size()) +
                                                  " schedules, because of bugs in dcc") +
                     "; reduction order " + (once ? "per-step" : "per-micro-batch") + "; chain " +
                     passes::print(found.chain);
  return {"auto",
          "chain-chosen",
          {},
          {{"simulated", found.simulated},
           {"step_ns", found.time.v},
           {"named_step_ns", found.best_named_time.v},
           {"bound_ns", found.bound.v},
           {"left_out", static_cast<int64_t>(found.refused.size())},
           {"cut_short", found.cut_short ? 1 : 0}},
          text};
}

}  // namespace dc::search
