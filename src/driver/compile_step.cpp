#include "src/driver/compile_step.h"

#include <optional>
#include <utility>

#include "src/base/text.h"
#include "src/driver/step_compiler.h"
#include "src/driver/within_budget.h"

namespace dc::driver {

using base::Bytes;
using base::Result;
using base::Status;
using runtime::plan::Plan;

namespace {

// If what the search finds in its time is above the budget, the first schedule that fits is the
// answer, however long that takes: so a budget has a plan here if it has one without the clock.
Result<Plan> plan_in_time(StepCompiler& in_time, StepCompiler& without_clock, Bytes budget) {
  Result<Plan> plan = in_time.run(budget);
  if (plan.ok() || !in_time.excess()) return plan;
  if (std::optional<Result<Plan>> lower = plan_for_less(in_time, budget)) return std::move(*lower);
  if (!in_time.was_cut_short()) return smallest_within(in_time, std::move(plan), budget);
  plan = within_budget(without_clock, budget);
  if (plan.ok()) plan->notes.emplace_back(kCutShort);
  return plan;
}

}  // namespace

Status over_budget(const Status& over, Bytes budget, int64_t smallest) {
  Status status(over.kind(), over.code(),
                "no schedule was found that keeps the budget of " + std::to_string(budget.v) +
                    " bytes; the smallest that was found takes --memory " +
                    std::to_string(smallest) + " (" + base::format_bytes(smallest) +
                    "). In the schedule that came nearest, " + over.sentence());
  for (const std::string& line : over.context()) status.add_context(line);
  return status;
}

ir::Step with_options(ir::Step step, const CompileOptions& options) {
  step.mesh.axes = {{"dp", options.world}};
  step.accumulation = options.accumulation;
  step.reduce_dtype = options.reduce_dtype;
  return step;
}

Status own_fault(const Status& found) {
  Status fault(base::ErrorKind::Internal, found.code(), found.sentence());
  for (const std::string& line : found.context()) fault.add_context(line);
  fault.add_context("the plan just compiled did not pass its own verification");
  return fault;
}

Result<Plan> compile_step(ir::Step step, const CompileOptions& options, const cost::CostModel& cost,
                          const PartDone& done, const OutOfTime& out_of_time) {
  DC_RETURN_IF_ERROR(check(options));
  step = with_options(std::move(step), options);
  const OutOfTime never;
  StepCompiler in_time(step, options, cost, done, out_of_time);
  const search::PlannedMemory& budget = options.passes.memory();
  if (!budget) return in_time.run(budget);
  const bool has_clock = out_of_time && in_time.searches();
  StepCompiler without_clock(step, options, cost, done, never,
                             has_clock ? SearchUntil::Fits : SearchUntil::Best);
  return has_clock ? plan_in_time(in_time, without_clock, *budget)
                   : within_budget(without_clock, *budget);
}

Result<Plan> compile_planned(ir::Step step, const CompileOptions& options,
                             const cost::CostModel& cost, const search::PlannedMemory& planned) {
  DC_RETURN_IF_ERROR(check(options));
  step = with_options(std::move(step), options);
  CompileOptions unlimited = options;
  unlimited.passes.budgets[ir::Space::Device].reset();
  const PartDone silent;
  const OutOfTime never;
  return StepCompiler(step, unlimited, cost, silent, never).run(planned);
}

std::optional<Bytes> smallest_memory(ir::Step step, const CompileOptions& options,
                                     const cost::CostModel& cost) {
  step = with_options(std::move(step), options);
  CompileOptions limited = options;
  limited.passes.budgets[ir::Space::Device] = Bytes{1};
  const PartDone silent;
  const OutOfTime never;
  const std::optional<int64_t> bytes = StepCompiler(step, limited, cost, silent, never).smallest();
  return bytes ? std::optional<Bytes>(Bytes{*bytes}) : std::nullopt;
}

}  // namespace dc::driver
