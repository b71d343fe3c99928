#include "src/search/scheduled_steps.h"

#include <algorithm>

#include "src/analysis/memory.h"

namespace dc::search {
namespace {

using base::Result;
using passes::Chain;
using passes::PassCall;

bool is_layout(const PassCall& call) { return call.pass->gives == ir::Stage::Allocated; }

// The passes before those that change a scheduled step.
Chain stage_of(const Chain& chain) {
  const auto split = std::find_if(chain.begin(), chain.end(), [](const PassCall& call) {
    return call.pass->needs == ir::Stage::Scheduled;
  });
  return {chain.begin(), split};
}

// Of the passes up to recompute only that one asks for the memory, unless its call says how much.
std::string key_of(const Candidate& candidate) {
  std::string key = passes::print(candidate.chain);
  const bool asks = std::any_of(
      candidate.chain.begin(), candidate.chain.end(),
      [](const PassCall& call) { return call.pass->name == "recompute" && !call.argument; });
  if (asks && candidate.planned) key += " within " + std::to_string(candidate.planned->v);
  return key;
}

}  // namespace

Result<ir::Step> ScheduledSteps::made(const Candidate& candidate) {
  const passes::Pass* recompute = passes::find_pass("recompute");
  const Chain& chain = candidate.chain;
  const auto split = std::find_if(chain.begin(), chain.end(),
                                  [&](const PassCall& call) { return call.pass > recompute; });
  DC_ASSIGN_OR_RETURN(const SharedStep first,
                      begun({Chain(chain.begin(), split), candidate.planned}));
  ir::Step step = *first;
  DC_RETURN_IF_ERROR(
      apply(step, Chain(split, chain.end()), options_for(candidate.planned)).status());
  return step;
}

Result<ScheduledSteps::SharedStep> ScheduledSteps::scheduled(const Chain& chain) {
  return begun({stage_of(chain), {}});
}

Result<RecomputeRange> ScheduledSteps::recompute_range(const Chain& chain) {
  const std::string key = passes::print(stage_of(chain));
  if (const auto found = ranges_.find(key); found != ranges_.end()) return found->second;
  DC_ASSIGN_OR_RETURN(const SharedStep everything, scheduled(chain));
  passes::Options full = options_;
  full.recompute = passes::Recompute::Full;
  ir::Step inputs = *everything;
  DC_RETURN_IF_ERROR(
      apply(inputs, {{passes::find_pass("recompute"), std::nullopt}}, full).status());
  const RecomputeRange range{live_bytes(inputs, cost_), live_bytes(*everything, cost_)};
  return ranges_.emplace(key, range).first->second;
}

Result<int64_t> ScheduledSteps::state_bytes(const Chain& chain) {
  DC_ASSIGN_OR_RETURN(const SharedStep step, scheduled(chain));
  return analysis::state_bytes(*step, ir::Space::Device).v;
}

void ScheduledSteps::keep_stages_of(std::span<const Chain> chains) {
  std::vector<std::string> kept;
  for (const Chain& chain : chains) kept.push_back(passes::print(stage_of(chain)));
  std::erase_if(steps_, [&](const auto& one) {
    return std::none_of(kept.begin(), kept.end(),
                        [&](const std::string& stage) { return one.first.starts_with(stage); });
  });
}

passes::Options ScheduledSteps::options_for(const std::optional<base::Bytes>& planned) const {
  passes::Options options = options_;
  options.budgets[ir::Space::Device] = planned;
  return options;
}

// The step after the passes up to `schedule`, then after each further one.
Result<ScheduledSteps::SharedStep> ScheduledSteps::begun(const Candidate& candidate) {
  const std::string key = key_of(candidate);
  if (const auto found = steps_.find(key); found != steps_.end()) return found->second;
  Candidate before = candidate;
  do {
    before.chain.pop_back();
  } while (!before.chain.empty() && before.chain.back().pass->gives != ir::Stage::Scheduled);
  SharedStep begin;
  if (!before.chain.empty()) {
    DC_ASSIGN_OR_RETURN(begin, begun(before));
  }
  auto step = std::make_shared<ir::Step>(begin ? *begin : imported_);
  const Chain rest(candidate.chain.begin() + static_cast<std::ptrdiff_t>(before.chain.size()),
                   candidate.chain.end());
  DC_ASSIGN_OR_RETURN(const passes::Change change,
                      apply(*step, rest, options_for(candidate.planned)));
  const bool is_new = !begin || change == passes::Change::Yes;
  return steps_.emplace(key, is_new ? std::move(step) : begin).first->second;
}

Result<passes::Change> ScheduledSteps::apply(ir::Step& step, const Chain& chain,
                                             const passes::Options& options) const {
  std::vector<passes::Remark> remarks;
  passes::PassContext context{cost_, options, remarks};
  context.collect_remarks = false;
  passes::Change total = passes::Change::No;
  for (const PassCall& call : chain) {
    if (is_layout(call)) continue;
    DC_ASSIGN_OR_RETURN(const passes::Change change, passes::apply(call, step, context));
    if (change == passes::Change::Yes) total = change;
  }
  return total;
}

int64_t live_bytes(const ir::Step& step, const cost::CostModel& cost) {
  return analysis::peak_memory(step,
                               [&](const ir::Graph& graph, const ir::Node& node) {
                                 return cost.scratch(graph, node).bytes;
                               })
      .live.v;
}

}  // namespace dc::search
