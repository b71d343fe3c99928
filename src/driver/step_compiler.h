// One imported step under one set of options: the search or a chain by name, its passes, the
// layout, the emission.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"
#include "src/bound/bound.h"
#include "src/cost/cost_model.h"
#include "src/driver/compile_options.h"
#include "src/driver/compile_step.h"
#include "src/ir/step.h"
#include "src/layout/allocate.h"
#include "src/passes/pass_manager.h"
#include "src/search/lower_plans.h"
#include "src/search/moves.h"
#include "src/search/smallest_chain.h"
#include "src/search/smallest_plan.h"

namespace dc::driver {

// How much of a chain's space the search looks through: until a schedule is the best that it
// finds, or only until one keeps to what was planned for.
enum class SearchUntil : uint8_t { Best, Fits };

// The references must outlive it. within_budget() makes its plans keep a budget.
class StepCompiler {
 public:
  StepCompiler(const ir::Step& step, const CompileOptions& options, const cost::CostModel& cost,
               const PartDone& done, const OutOfTime& out_of_time,
               SearchUntil until = SearchUntil::Best)
      : step_(step),
        options_(for_passes(options)),
        cost_(cost),
        done_(done),
        out_of_time_(out_of_time),
        until_(until) {}

  // Whether a search chooses the chain.
  bool searches() const { return options_.own_passes.empty() && options_.chain == "auto"; }

  // Search and passes plan for `planned` bytes of the device's memory; the addresses must keep the
  // budgets of the options, else OutOfMemory (80).
  base::Result<runtime::plan::Plan> run(const search::PlannedMemory& planned);

  // Of the last run, if the device's arena was why it failed.
  const std::optional<search::Excess>& excess() const { return excess_; }
  // Whether passes that plan for less than the last run's may keep the budget. A search has made
  // its chains fit by the same rule: where it found none there is nothing to add, unless it is the
  // plan's other program that does not keep the budget.
  bool may_fit_for_less() const { return !searches() || search_fits_; }

  // Whether the search of the last run was out of time.
  bool was_cut_short() const { return cut_short_; }

  // Bytes of the device's arena of the smallest plan, whatever the budget; empty if there is
  // another reason why none is made.
  std::optional<int64_t> smallest();
  // That plan. After smallest().
  base::Result<runtime::plan::Plan> run_smallest();

 private:
  // What is lowered, and what there is to say about the choice.
  struct Choice {
    passes::Chain chain;
    passes::Options options;
    std::vector<passes::Remark> remarks{};
    std::vector<std::string> refused{};
    bool cut_short = false;
    bool fits = true;                                 // as the search says
    std::optional<search::SmallestChain> smallest{};  // where it looked for that
    std::optional<bound::LowerBound> certificate{};
  };
  struct LoweredStep {
    ir::Step step;
    std::optional<ir::Step> evaluation;
  };

  void part_done(const char* part) const {
    if (done_) done_(part);
  }
  base::Result<Choice> choose(const search::PlannedMemory& planned,
                              const std::set<std::string>& left_out) const;
  base::Result<Choice> search(const passes::Options& options,
                              const std::set<std::string>& left_out) const;
  // What the chain makes without a budget for its addresses.
  std::optional<int64_t> arena(Choice choice);
  base::Result<LoweredStep> lower(Choice& choice, const layout::Budgets& budgets);
  base::Status add_evaluation(const passes::PassContext& context, LoweredStep& lowered);
  void note_excess(const ir::Step& step, const layout::Budgets& budgets);
  base::Result<runtime::plan::Plan> emit(const LoweredStep& lowered, Choice choice);
  // The chain that makes the same without --recompute.
  passes::Chain as_decided(const passes::Chain& chain) const {
    return search::said_to_decide(chain, options_.passes.recompute);
  }

  // Passes know the device.
  static CompileOptions for_passes(CompileOptions options) {
    options.passes.device = options.device_kind();
    return options;
  }

  const ir::Step& step_;
  const CompileOptions options_;
  const cost::CostModel& cost_;
  const PartDone& done_;
  const OutOfTime& out_of_time_;
  const SearchUntil until_;
  std::optional<search::Excess> excess_;
  bool search_fits_ = true, cut_short_ = false;  // of the last run
  std::vector<std::string> refused_;             // by its search
  std::optional<search::SmallestChain> smallest_;
};

}  // namespace dc::driver
