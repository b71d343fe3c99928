// within_budget: how a chain, or what a search finds, is made to keep a budget of the device's
// memory: by passes that plan for the budget, else for less (src/search/lower_plans.h), else the
// smallest plan that is found (src/search/smallest_plan.h).
//
// `Compiler` makes one step's plans, in whatever form (StepCompiler has plan files' plans,
// chain_table of the tests steps):
//   Result<Plan> run(const search::PlannedMemory&)  by passes that plan for so much; OutOfMemory
//                                                   (80) if the plan is above the budget
//   optional<search::Excess> excess()               of the last run, if that is why it failed
//   bool may_fit_for_less()                         false: the rule of LowerPlans was tried
//   optional<int64_t> smallest()                    bytes of the smallest plan; empty: none
//   Result<Plan> run_smallest()                     that plan, after smallest()
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "src/base/status.h"
#include "src/base/units.h"
#include "src/search/lower_plans.h"
#include "src/search/smallest_plan.h"

namespace dc::driver {

// OutOfMemory (80) that names the smallest plan. `over`: what the first plan says of the budget.
base::Status over_budget(const base::Status& over, base::Bytes budget, int64_t smallest);

// After a run that was above the budget: by passes that plan for less. Empty if none keeps it.
template <typename Compiler>
auto plan_for_less(Compiler& compiler, base::Bytes budget) {
  using Made = decltype(compiler.run(budget));
  std::optional<Made> kept;
  if (!compiler.may_fit_for_less()) return kept;
  search::LowerPlans lower(budget);
  while (compiler.excess()) {
    const std::optional<base::Bytes> planned = lower.next(*compiler.excess());
    if (!planned) break;
    Made made = compiler.run(*planned);
    if (!made.ok()) continue;
    kept = std::move(made);
    break;
  }
  return kept;
}

// After that: the smallest plan. Errors: over_budget() if it does not keep the budget; those of
// `made`, the first run, if there is none.
template <typename Compiler, typename Made>
Made smallest_within(Compiler& compiler, Made made, base::Bytes budget) {
  const std::optional<int64_t> smallest = compiler.smallest();
  if (!smallest) return made;
  if (*smallest > budget.v) return over_budget(made.status(), budget, *smallest);
  return compiler.run_smallest();
}

// Errors: over_budget() if no plan keeps the budget; else those of the first run.
template <typename Compiler>
auto within_budget(Compiler& compiler, base::Bytes budget) -> decltype(compiler.run(budget)) {
  auto made = compiler.run(budget);
  if (made.ok() || !compiler.excess()) return made;
  if (auto lower = plan_for_less(compiler, budget)) return std::move(*lower);
  return smallest_within(compiler, std::move(made), budget);
}

}  // namespace dc::driver
