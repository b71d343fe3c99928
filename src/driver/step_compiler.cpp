#include "src/driver/step_compiler.h"

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/plan/structure.h"
#include "runtime/verify/verify.h"
#include "src/analysis/memory.h"
#include "src/base/build_id.h"
#include "src/base/sha256.h"
#include "src/base/text.h"
#include "src/driver/byte_prices.h"
#include "src/driver/device_kernels.h"
#include "src/passes/evaluation/lower_evaluation.h"
#include "src/plan/emit.h"
#include "src/search/auto.h"
#include "src/search/chains.h"

namespace dc::driver {

using base::ErrorKind;
using base::Result;
using base::Status;
using runtime::plan::Plan;

namespace {

constexpr size_t kMostLeftOut = 8;

Result<passes::Chain> own_chain(const CompileOptions& options) {
  DC_ASSIGN_OR_RETURN(passes::Chain chain, passes::parse_passes(options.own_passes));
  if (chain.empty() || chain.back().pass->gives != ir::Stage::Allocated) {
    return Status(ErrorKind::Usage, "DC2606",
                  "--passes must end with layout-arenas, which gives every value its address");
  }
  const bool recomputes = std::any_of(chain.begin(), chain.end(), [](const passes::PassCall& call) {
    return call.pass->name == "recompute";
  });
  if (options.passes.recompute == passes::Recompute::Full && !recomputes) {
    return Status(ErrorKind::Usage, "DC2611",
                  "--recompute full needs the pass recompute in --passes, after schedule");
  }
  return chain;
}

Result<std::optional<search::EarlierChain>> earlier_chain(const EarlierPlan& plan) {
  if (plan.digest.empty()) return std::optional<search::EarlierChain>();
  Result<passes::Chain> chain = passes::parse_passes(plan.passes);
  if (!chain.ok()) return std::move(chain).status().add_context("in the chain of " + plan.file);
  return std::optional(search::EarlierChain{plan.digest, {std::move(*chain), plan.planned}});
}

// That the passes planned for other than the budget.
base::Remark planned_for(const search::PlannedMemory& planned, base::Bytes budget) {
  base::Remark remark{"layout-arenas", "passes-planned-for", {}, {{"budget_bytes", budget.v}}};
  if (planned) remark.numbers.push_back({"planned_bytes", planned->v});
  remark.text =
      "the passes before planned " +
      (planned ? "for " + base::format_bytes(planned->v) : std::string("without a limit")) +
      ": so the addresses, which need more than the live bytes, keep the budget of " +
      base::format_bytes(budget.v);
  return remark;
}

// What no machine has, as of a mistyped --dim.
Status check_arenas(const ir::Step& step) {
  for (const ir::Space space : ir::kSpaces) {
    const int64_t bytes = step.arena_bytes[space];
    if (bytes <= runtime::plan::kMaxArena) continue;
    return Status(ErrorKind::OutOfMemory, "DC7011",
                  "each rank needs " + std::to_string(bytes) + " bytes (" +
                      base::format_bytes(bytes) + ") of " + std::string(base::name(space)) +
                      " memory and a plan has at most " +
                      base::format_bytes(runtime::plan::kMaxArena) +
                      "; check --dim, use more ranks or make the micro-batch smaller");
  }
  return {};
}

layout::Budgets without_device(layout::Budgets budgets) {
  budgets[ir::Space::Device].reset();
  return budgets;
}

}  // namespace

Result<Plan> StepCompiler::run(const search::PlannedMemory& planned) {
  excess_.reset();
  // The chain that the search chose may still end in an internal error when it is lowered. The
  // search then runs again without that chain.
  std::set<std::string> left_out;
  std::vector<std::string> refused;
  for (;;) {
    DC_ASSIGN_OR_RETURN(Choice choice, choose(planned, left_out));
    search_fits_ = choice.fits;
    cut_short_ = choice.cut_short;
    if (choice.smallest) smallest_ = std::move(choice.smallest);
    for (const std::string& one : refused) choice.refused.push_back(one);
    refused_ = choice.refused;
    const std::string chain = passes::print(choice.chain);
    const Result<LoweredStep> lowered = lower(choice, options_.passes.budgets);
    Result<Plan> plan =
        lowered.ok() ? emit(*lowered, std::move(choice)) : Result<Plan>(lowered.status());
    if (plan.ok() || plan.status().kind() != ErrorKind::Internal || !searches() ||
        left_out.size() >= kMostLeftOut)
      return plan;
    left_out.insert(chain);
    refused.push_back(chain + ": " + plan.status().code() + " " + plan.status().sentence());
  }
}

std::optional<int64_t> StepCompiler::smallest() {
  if (searches()) {
    if (!smallest_) smallest_ = search::find_smallest(step_, options_.passes, cost_);
    part_done("search");
    if (smallest_ && step_.evaluation) {
      const std::optional<int64_t> both = arena({smallest_->chain, smallest_->options});
      if (!both) smallest_.reset();
      if (both) smallest_->bytes = *both;
    }
    return smallest_ ? std::optional(smallest_->bytes) : std::nullopt;
  }
  const Result<Choice> choice = choose({}, {});
  if (!choice.ok()) return std::nullopt;
  const auto planning_for = [&](const search::PlannedMemory& planned) {
    passes::Options options = choice->options;
    options.budgets[ir::Space::Device] = planned;
    return options;
  };
  const std::optional<search::SmallestPlan> found =
      search::smallest_plan([&](const search::PlannedMemory& planned) {
        return arena({choice->chain, planning_for(planned)});
      });
  if (!found) return std::nullopt;
  smallest_ = {choice->chain, planning_for(found->planned), found->bytes};
  return found->bytes;
}

Result<Plan> StepCompiler::run_smallest() {
  excess_.reset();
  Choice choice{smallest_->chain, smallest_->options};
  choice.refused = refused_;
  const Result<LoweredStep> lowered = lower(choice, options_.passes.budgets);
  return lowered.ok() ? emit(*lowered, std::move(choice)) : Result<Plan>(lowered.status());
}

std::optional<int64_t> StepCompiler::arena(Choice choice) {
  const Result<LoweredStep> lowered = lower(choice, without_device(options_.passes.budgets));
  if (!lowered.ok()) return std::nullopt;
  const int64_t evaluation =
      lowered->evaluation ? lowered->evaluation->arena_bytes[ir::Space::Device] : 0;
  return std::max(lowered->step.arena_bytes[ir::Space::Device], evaluation);
}

Result<StepCompiler::Choice> StepCompiler::choose(const search::PlannedMemory& planned,
                                                  const std::set<std::string>& left_out) const {
  Choice choice{{}, options_.passes};
  choice.options.budgets[ir::Space::Device] = planned;
  if (searches()) return search(choice.options, left_out);
  DC_ASSIGN_OR_RETURN(choice.chain, options_.own_passes.empty() ? search::find_chain(options_.chain)
                                                                : own_chain(options_));
  return choice;
}

Result<StepCompiler::Choice> StepCompiler::search(const passes::Options& options,
                                                  const std::set<std::string>& left_out) const {
  // Without a limit every schedule fits.
  const bool first_fit = until_ == SearchUntil::Fits && options.memory();
  const int effort = options_.search_effort.value_or(search::default_effort(step_, options));
  DC_ASSIGN_OR_RETURN(std::optional<search::EarlierChain> earlier,
                      earlier_chain(options_.start_from));
  DC_ASSIGN_OR_RETURN(search::SearchResult found,
                      search::find_best(step_, options, cost_,
                                        {effort, out_of_time_, left_out, options_.passes.memory(),
                                         first_fit, std::move(earlier)}));
  part_done("search");
  passes::Chain chain = std::exchange(found.chain, as_decided(found.chain));
  base::Remark chosen = search::describe(found);
  return Choice{
      std::move(chain), found.options, {std::move(chosen)},       std::move(found.refused),
      found.cut_short,  found.fits,    std::move(found.smallest), std::move(found.certificate)};
}

Result<StepCompiler::LoweredStep> StepCompiler::lower(Choice& choice,
                                                      const layout::Budgets& budgets) {
  LoweredStep lowered{step_, {}};
  const std::span<const passes::PassCall> chain(choice.chain);
  const passes::PassContext planning{cost_, choice.options, choice.remarks};
  passes::Options kept = choice.options;
  kept.budgets = budgets;
  const passes::PassContext keeping{cost_, kept, choice.remarks};
  // Of a search's result the last step alone: verifying each takes a tenth of the search's time,
  // and a chain that fails is left out of the next one.
  const auto verify = searches() ? passes::Verify::Before : passes::Verify::AfterEach;
  Result<passes::Change> change =
      passes::run_passes(lowered.step, chain.first(chain.size() - 1), planning, verify,
                         [&](const passes::Pass&) { part_done("passes"); });
  if (change.ok()) {
    change = passes::apply_verified(chain.back(), lowered.step, keeping);
    if (change.ok()) {
      part_done("layout");
    } else {
      note_excess(lowered.step, budgets);
    }
  }
  if (!change.ok()) {
    return std::move(change).status().add_context("in chain " + passes::print(choice.chain));
  }
  if (step_.evaluation) {
    DC_RETURN_IF_ERROR(add_evaluation(keeping, lowered));
    part_done("evaluation");
  }
  return lowered;
}

Status StepCompiler::add_evaluation(const passes::PassContext& context, LoweredStep& lowered) {
  Result<ir::Step> evaluation = passes::lower_evaluation(lowered.step, context);
  if (evaluation.ok()) {
    lowered.evaluation = std::move(*evaluation);
    return {};
  }
  if (evaluation.status().kind() == ErrorKind::OutOfMemory) {
    passes::Options unlimited = context.options;
    unlimited.budgets = without_device(unlimited.budgets);
    const Result<ir::Step> larger =
        passes::lower_evaluation(lowered.step, {cost_, unlimited, context.remarks});
    if (larger.ok()) note_excess(*larger, context.options.budgets);
  }
  return evaluation.status();
}

void StepCompiler::note_excess(const ir::Step& step, const layout::Budgets& budgets) {
  const std::optional<base::Bytes>& budget = budgets[ir::Space::Device];
  const int64_t arena = step.arena_bytes[ir::Space::Device];
  if (!budget || arena <= budget->v) return;
  const auto scratch = [&](const ir::Graph& graph, const ir::Node& node) {
    return cost_.scratch(graph, node).bytes;
  };
  excess_ = {arena - budget->v, analysis::peak_memory(step, scratch, 0).live <= *budget};
}

Result<Plan> StepCompiler::emit(const LoweredStep& lowered, Choice choice) {
  DC_RETURN_IF_ERROR(check_arenas(lowered.step));
  plan::EmitOptions emit_options;
  if (lowered.evaluation) {
    DC_RETURN_IF_ERROR(check_arenas(*lowered.evaluation));
    emit_options.evaluation = &*lowered.evaluation;
  }
  emit_options.device = options_.device_kind();
  emit_options.threads = options_.threads;
  emit_options.chain = options_.own_passes.empty() ? options_.chain : passes::print(choice.chain);
  emit_options.budgets = options_.passes.budgets;
  DC_ASSIGN_OR_RETURN(Plan plan, plan::emit(lowered.step, emit_options, cost_));
  DC_RETURN_IF_ERROR(check_kernels(plan));
  part_done("emit");
  if (const Status found = runtime::verify::verify_meaning(plan); !found.ok()) {
    return own_fault(found);
  }
  part_done("verify");
  plan.options = options_.canonical();
  plan.options_digest = base::sha256_hex(plan.options);
  plan.compiler = std::string(base::build_id());
  plan.passes = passes::print(as_decided(choice.chain));
  plan.remarks = std::move(choice.remarks);
  const search::PlannedMemory &planned = choice.options.memory(),
                              &budget = options_.passes.memory();
  if (budget && planned != budget) plan.remarks.push_back(planned_for(planned, *budget));
  if (choice.certificate) add_byte_prices(lowered.step, *choice.certificate, plan.remarks);
  if (choice.cut_short) plan.notes.emplace_back(kCutShort);
  for (const std::string& one : choice.refused) plan.notes.push_back(kLeftOut + one);
  return plan;
}

}  // namespace dc::driver
