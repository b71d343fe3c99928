#include "src/search/scheduled_steps.h"

#include <algorithm>

#include "src/analysis/live_bytes.h"
#include "src/layout/allocate.h"
#include "src/schedule/reduction_tail.h"
#include "src/schedule/time_axis.h"
#include "src/search/moves.h"
#include "src/search/opening.h"
#include "src/sim/simulate.h"

namespace dc::search {
namespace {

using base::Result;
using passes::Chain;
using passes::PassCall;

bool is_recompute(const PassCall& call) { return call.pass->name == "recompute"; }
bool decides_stage(const PassCall& call) { return call.pass->name == "shard-parameters"; }
bool is_layout(const PassCall& call) { return call.pass->gives == ir::Stage::Allocated; }

// The passes before those that change a scheduled step.
Chain stage_of(const Chain& chain) {
  const auto split = std::find_if(chain.begin(), chain.end(), [](const PassCall& call) {
    return call.pass->needs == ir::Stage::Scheduled;
  });
  return {chain.begin(), split};
}

// What is kept may be smaller than what it is made from again, or than a second gather's buffers.
bool keeps_more(const PassCall& call) { return call.pass->name.starts_with("keep-"); }
// Early updates end the life of gradients.
bool updates_early(const PassCall& call) { return call.pass->name == "overlap-update"; }

bool is_reduction_or_norm(ir::OpKind kind) {
  return schedule::is_reduction(kind) || kind == ir::OpKind::SquareSum;
}

// Bytes live at most at the positions that updates never come before: those of programs that update
// nothing, and those before the first gradient is reduced or goes into the norm.
int64_t live_before_updates(const ir::Step& step, const cost::CostModel& cost) {
  int64_t most = 0;
  for (const ir::Program& program : step.programs) {
    const ir::Graph& graph = program.graph;
    const analysis::Liveness live =
        analysis::liveness(step, graph, analysis::StorageMap(step, graph));
    const std::vector<int64_t> bytes = schedule::transient_bytes(graph, live, cost);
    const bool updates = &program == &step.programs.back();
    for (size_t i = 0; i < live.order.size(); ++i) {
      if (updates && is_reduction_or_norm(graph.node(live.order[i]).kind)) break;
      most = std::max(most, bytes[i]);
    }
  }
  return analysis::state_bytes(step, ir::Space::Device).v + most;
}

// A limit of recompute may lead to fewer transients than its smallest by one part in so many.
constexpr int64_t kRecomputeReach = 32;

}  // namespace

// By the passes that make the same step whatever options say of recomputation and, as of those up
// to recompute only that one asks for the memory, unless its call says how much, but all behind it
// do, by the bytes that they plan for.
std::string ScheduledSteps::key_of(const Candidate& candidate) const {
  const passes::Pass* recompute = passes::find_pass("recompute");
  const auto asks = [&](const PassCall& call) {
    return call.pass > recompute || (is_recompute(call) && !call.argument);
  };
  const Chain chain = said_to_decide(candidate.chain, options_.recompute);
  std::string key = passes::print(chain);
  if (std::ranges::none_of(chain, asks)) return key;
  return key + " within " + (candidate.planned ? std::to_string(candidate.planned->v) : "");
}

Result<ir::Step> ScheduledSteps::made(const Candidate& candidate) {
  const passes::Pass* recompute = passes::find_pass("recompute");
  const Chain& chain = candidate.chain;
  const auto from_begin = [&](size_t passes) {
    return Chain(chain.begin(), chain.begin() + static_cast<std::ptrdiff_t>(passes));
  };
  const auto count_if = [&](auto comes_first) {
    return static_cast<size_t>(std::find_if_not(chain.begin(), chain.end(), comes_first) -
                               chain.begin());
  };
  const size_t begin = count_if([&](const PassCall& call) { return call.pass <= recompute; });
  const size_t end = count_if([](const PassCall& call) { return !is_layout(call); });
  SharedStep last;
  size_t done = 0;
  for (size_t i = stage_of(chain).size(); i < end; ++i) {  // all of them are in use
    SharedStep found = known_.steps.find(key_of({from_begin(i), candidate.planned}));
    if (!found) continue;
    last = std::move(found);
    done = i;
  }
  if (!last || done < begin) {
    done = std::min(begin, end);
    DC_ASSIGN_OR_RETURN(last, begun({from_begin(done), candidate.planned}));
  }
  ir::Step step = *last;
  const passes::Options options = options_for(candidate.planned);
  bool is_last = true;  // what `step` is
  for (bool keeps = true; done < end; ++done) {
    DC_ASSIGN_OR_RETURN(
        const passes::Change change,
        makes_exchanges(*chain[done].pass)
            ? exchange(step, chain[done], key_of({from_begin(done), candidate.planned}), options)
            : apply(step, {chain[done]}, options));
    is_last = is_last && change == passes::Change::No;
    // The next candidates change this chain further on, or here again; keep-jointly takes as long
    // as all other passes.
    if ((!keeps && !makes_exchanges(*chain[done].pass)) || done + 1 == end) continue;
    if (!is_last) last = std::make_shared<const ir::Step>(step);
    keeps = keeps && is_last;
    is_last = true;
    known_.steps.keep(key_of({from_begin(done + 1), candidate.planned}), last);
  }
  return step;
}

Result<SharedStep> ScheduledSteps::latest(const Candidate& candidate, const std::string& key) {
  if (latest_ && latest_key_ == key) return latest_;
  latest_.reset();  // two large steps take more memory than one
  DC_ASSIGN_OR_RETURN(ir::Step step, made(candidate));
  latest_ = std::make_shared<const ir::Step>(std::move(step));
  latest_key_ = key;
  return latest_;
}

Result<ScheduleCosts> ScheduledSteps::costs(const Candidate& candidate) {
  const std::string key = key_of(candidate);
  if (const auto found = known_.costs.find(key); found != known_.costs.end()) return found->second;
  DC_ASSIGN_OR_RETURN(const SharedStep step, latest(candidate, key));
  const sim::StepRun run = sim::simulate(*step, cost_);
  const ScheduleCosts costs{run.time, run.communication, live_bytes(*step, cost_),
                            node_count(*step)};
  return known_.costs.emplace(key, costs).first->second;
}

Result<std::optional<base::Bytes>> ScheduledSteps::arena_if_too_large(const Candidate& candidate) {
  const std::string key = key_of(candidate);
  const std::pair<std::string, int64_t> within{key, options_.memory() ? options_.memory()->v : -1};
  if (const auto found = known_.too_large.find(within); found != known_.too_large.end())
    return found->second;
  DC_ASSIGN_OR_RETURN(const SharedStep step, latest(candidate, key));
  DC_ASSIGN_OR_RETURN(const std::optional<base::Bytes> arena,
                      layout::arena_if_too_large(*step, cost_, options_.budgets, &known_.arenas));
  return known_.too_large[within] = arena;
}

void ScheduledSteps::forget_large() {
  if (latest_ && node_count(*latest_) > kLarge) latest_.reset();
}

base::Status ScheduledSteps::verify(const Candidate& candidate) {
  DC_ASSIGN_OR_RETURN(const SharedStep step, latest(candidate, key_of(candidate)));
  return ir::verify(*step, step->stage);
}

Result<SharedStep> ScheduledSteps::scheduled(const Chain& chain) {
  const Chain stage = stage_of(chain);
  DC_ASSIGN_OR_RETURN(SharedStep step, begun({stage, {}}));
  known_.state_bytes[passes::print(stage)] = analysis::state_bytes(*step, ir::Space::Device).v;
  return step;
}

Result<std::vector<size_t>> ScheduledSteps::different_fusions() {
  if (!known_.different_fusions.empty()) return known_.different_fusions;
  DC_ASSIGN_OR_RETURN(const Chain first, passes::parse_passes(DC_OPENING "fuse-elementwise"));
  std::vector<std::string> made;
  std::vector<size_t> different;
  for (size_t fusion = 0; fusion < std::size(kFusions); ++fusion) {
    DC_ASSIGN_OR_RETURN(const SharedStep step, begun({fused(first, fusion), {}}));
    std::string text = ir::print(*step);
    if (std::ranges::count(made, text) != 0) continue;
    made.push_back(std::move(text));
    different.push_back(fusion);
  }
  return known_.different_fusions = std::move(different);
}

Result<RecomputeRange> ScheduledSteps::recompute_range(const Chain& chain) {
  const std::string key = passes::print(stage_of(chain));
  if (const auto found = known_.ranges.find(key); found != known_.ranges.end())
    return found->second;
  DC_ASSIGN_OR_RETURN(const SharedStep everything, scheduled(chain));
  passes::Options full = options_;
  full.recompute = passes::Recompute::Full;
  ir::Step inputs = *everything;
  DC_RETURN_IF_ERROR(apply(inputs, {{passes::find_pass("recompute"), std::nullopt}}, full,
                           &known_recompute(stage_of(chain), everything))
                         .status());
  const RecomputeRange range{live_bytes(inputs, cost_), live_bytes(*everything, cost_)};
  return known_.ranges.emplace(key, range).first->second;
}

Result<int64_t> ScheduledSteps::state_bytes(const Chain& chain) {
  const std::string stage = passes::print(stage_of(chain));
  if (!known_.state_bytes.contains(stage)) DC_RETURN_IF_ERROR(scheduled(chain).status());
  return known_.state_bytes.at(stage);
}

Result<LiveFloor> ScheduledSteps::live_floor(const Chain& chain) {
  const auto recompute = std::find_if(chain.begin(), chain.end(), is_recompute);
  const std::optional<bool> early = updates_early_behind(chain);
  if (!early || recompute == chain.end()) return LiveFloor();
  Candidate begin{{chain.begin(), recompute + 1}, base::Bytes{1}};
  begin.chain.back().argument.reset();
  const std::pair<std::string, bool> key{key_of(begin), *early};
  if (const auto known = known_.floors.find(key); known != known_.floors.end())
    return known->second;
  DC_ASSIGN_OR_RETURN(const SharedStep step, begun(begin));
  const int64_t live = live_behind(*step, *early);
  const int64_t transients = live - analysis::state_bytes(*step, ir::Space::Device).v;
  return known_.floors[key] = {live, live - transients / kRecomputeReach};
}

Result<int64_t> ScheduledSteps::least_live(const Chain& chain) {
  DC_ASSIGN_OR_RETURN(const LiveFloor floor, live_floor(chain));
  return floor.least;
}

Result<int64_t> ScheduledSteps::least_live_without_limit(const Chain& chain) {
  const std::optional<bool> early = updates_early_behind(chain);
  const auto recompute = std::find_if(chain.begin(), chain.end(), is_recompute);
  if (!early || recompute == chain.end() || std::any_of(recompute, chain.end(), keeps_more))
    return 0;
  DC_ASSIGN_OR_RETURN(const SharedStep step, begun({{chain.begin(), recompute + 1}, {}}));
  return live_behind(*step, *early);
}

Result<base::Bytes> ScheduledSteps::arena(const ir::Step& step) {
  return layout::device_arena(step, cost_, base::Bytes{0}, &known_.arenas);
}

Result<bool> ScheduledSteps::keeps_budgets_outside(const ir::Step& step) {
  layout::Budgets outside = options_.budgets;
  outside[ir::Space::Device].reset();
  return layout::fits(step, cost_, outside, &known_.arenas);
}

std::optional<bool> ScheduledSteps::updates_early_behind(const Chain& chain) {
  const auto recompute = std::find_if(chain.begin(), chain.end(), is_recompute);
  // Copies out end the life of what they copy.
  if (std::any_of(recompute, chain.end(), offloads)) return std::nullopt;
  return std::any_of(recompute, chain.end(), updates_early);
}

int64_t ScheduledSteps::live_behind(const ir::Step& step, bool updates_early) const {
  return updates_early ? live_before_updates(step, cost_) : live_bytes(step, cost_);
}

passes::Options ScheduledSteps::options_for(const std::optional<base::Bytes>& planned) const {
  passes::Options options = options_;
  options.budgets[ir::Space::Device] = planned;
  return options;
}

// The step after the passes that all ZeRO stages have in common, after those up to `schedule`, then
// after each further one.
Result<SharedStep> ScheduledSteps::begun(const Candidate& candidate) {
  const std::string key = key_of(candidate);
  if (SharedStep found = known_.steps.find(key)) return found;
  Candidate before = candidate;
  do {
    before.chain.pop_back();
  } while (!before.chain.empty() && before.chain.back().pass->gives != ir::Stage::Scheduled &&
           !decides_stage(candidate.chain[before.chain.size()]));
  SharedStep begin;
  if (!before.chain.empty()) {
    DC_ASSIGN_OR_RETURN(begin, begun(before));
  }
  auto step = std::make_shared<ir::Step>(begin ? *begin : imported_);
  const Chain rest(candidate.chain.begin() + static_cast<std::ptrdiff_t>(before.chain.size()),
                   candidate.chain.end());
  DC_ASSIGN_OR_RETURN(
      const passes::Change change,
      apply(*step, rest, options_for(candidate.planned),
            rest.size() == 1 && is_recompute(rest[0]) ? &known_recompute(before.chain, begin)
                                                      : nullptr));
  SharedStep made = !begin || change == passes::Change::Yes ? std::move(step) : begin;
  known_.steps.keep(key, made);
  // Those of steps that are forgotten.
  std::erase_if(known_.before_recompute,
                [](const auto& one) { return one.second->step.use_count() == 1; });
  return made;
}

passes::KnownRecompute& ScheduledSteps::known_recompute(const Chain& chain,
                                                        const SharedStep& step) {
  std::unique_ptr<StepStore::BeforeRecompute>& found =
      known_.before_recompute[passes::print(chain)];
  const int64_t whole = options_.memory() ? options_.memory()->v : INT64_MAX;
  if (!found) found.reset(new StepStore::BeforeRecompute{step, {*step, cost_, whole}});
  return found->known;
}

Result<passes::Change> ScheduledSteps::apply(ir::Step& step, const Chain& chain,
                                             const passes::Options& options,
                                             passes::KnownRecompute* recompute) {
  std::vector<passes::Remark> remarks;
  passes::PassContext context{cost_, options, remarks};
  context.collect_remarks = false;
  context.arenas = &known_.arenas;
  context.recompute = recompute;
  passes::Change total = passes::Change::No;
  for (const PassCall& call : chain) {
    if (is_layout(call)) continue;
    DC_ASSIGN_OR_RETURN(const passes::Change change, passes::apply(call, step, context));
    if (change == passes::Change::Yes) total = change;
  }
  return total;
}

Result<passes::Change> ScheduledSteps::exchange(ir::Step& step, const PassCall& call,
                                                const std::string& before,
                                                const passes::Options& options) {
  // Of parameters alone something may be kept where of both nothing was.
  const bool is_of_both =
      call.pass->name == "keep-jointly" && options.recompute != passes::Recompute::Full;
  if (!is_of_both) return apply(step, {call}, options);
  const std::string key = before + " planned " +
                          (options.memory() ? std::to_string(options.memory()->v) : std::string());
  const int64_t count = call.argument.value_or(INT64_MAX);
  const auto known = known_.kept_nothing.find(key);
  if (known != known_.kept_nothing.end() && known->second <= count) return passes::Change::No;
  DC_ASSIGN_OR_RETURN(const passes::Change change, apply(step, {call}, options));
  if (change == passes::Change::No) known_.kept_nothing[key] = count;
  return change;
}

int64_t live_bytes(const ir::Step& step, const cost::CostModel& cost) {
  const auto scratch = [&](const ir::Graph& graph, const ir::Node& node) {
    return cost.scratch(graph, node).bytes;
  };
  return analysis::most_live_bytes(step, scratch, ir::Space::Device).v;
}

}  // namespace dc::search
