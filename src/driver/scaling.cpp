#include "src/driver/scaling.h"

#include <utility>

#include "src/cost/costs.h"
#include "src/driver/compile_step.h"
#include "src/driver/decisions.h"
#include "src/driver/frontier.h"
#include "src/driver/request_check.h"
#include "src/sim/what_if.h"

namespace dc::driver {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;
using runtime::plan::Plan;

// Options and what the passes plan for, if a plan says it.
struct Decided {
  CompileRequest compile;
  std::optional<search::PlannedMemory> planned;
};

Result<Decided> decide(const ScalingRequest& request) {
  Decided decided{request.compile, {}};
  if (!request.plan) {
    DC_ASSIGN_OR_RETURN(decided.compile.options, completed(request.compile));
    return decided;
  }
  DC_ASSIGN_OR_RETURN(const Decisions of_plan, decisions_of(*request.plan));
  const search::PlannedMemory& budget = request.compile.options.passes.memory();
  DC_ASSIGN_OR_RETURN(const CompileOptions asked, completed(request.compile));
  decided.compile.options = of_plan.options;
  decided.compile.options.fused_estimate = asked.fused_estimate;
  if (budget) {
    decided.compile.options.passes.budgets[ir::Space::Device] = budget;
  } else {
    decided.planned = of_plan.planned;
  }
  return decided;
}

ScalingRow row_of(int world, int accumulation) {
  ScalingRow row;
  row.world = world;
  row.accumulation = accumulation;
  return row;
}

class ScalingRun {
 public:
  ScalingRun(const ScalingRequest& request, Decided decided, Stopwatch& watch)
      : request_(request),
        compile_(std::move(decided.compile)),
        planned_(decided.planned),
        costs_(compile_.profile, compile_.options.threads, compile_.options.fused_estimate.network),
        watch_(watch) {}

  Result<Scaling> run(const RowDone& done) {
    if (!request_.plan) DC_RETURN_IF_ERROR(check_spaces(compile_));
    const std::vector<CompileOptions> asked = all_asked();
    for (const CompileOptions& one : asked) DC_RETURN_IF_ERROR(check(one));
    DC_ASSIGN_OR_RETURN(model_, read_model(compile_.model, compile_.config, compile_.dims));
    watch_.lap("read");
    Scaling scaling;
    scaling.budget = compile_.options.passes.memory();
    if (request_.plan) {
      DC_RETURN_IF_ERROR(check_is_of(*request_.plan, model_));
      scaling.base = row_of(request_.plan->world(), request_.plan->accumulation);
      DC_RETURN_IF_ERROR(predict(*request_.plan, *scaling.base));
    }
    for (const CompileOptions& one : asked) {
      scaling.rows.push_back(row(one));
      const ScalingRow& made = scaling.rows.back();
      if (!scaling.base && made.has_step()) scaling.base = made;
      if (done) done(static_cast<int>(scaling.rows.size()), static_cast<int>(asked.size()));
    }
    for (ScalingRow& made : scaling.rows) {
      if (made.has_step()) made.efficiency = rate(made) / rate(*scaling.base);
    }
    if (scaling.base) scaling.base->efficiency = 1;
    return scaling;
  }

 private:
  // Of each rank.
  static double rate(const ScalingRow& row) { return row.micro_batches_per_second() / row.world; }

  std::vector<CompileOptions> all_asked() const {
    std::vector<CompileOptions> all;
    const std::vector<int> plans_world{compile_.options.world};
    const std::vector<int> plans_accumulation{compile_.options.accumulation};
    for (const int world : request_.worlds.empty() ? plans_world : request_.worlds) {
      for (const int accumulation :
           request_.accumulations.empty() ? plans_accumulation : request_.accumulations) {
        all.push_back(compile_.options);
        all.back().world = world;
        all.back().accumulation = accumulation;
      }
    }
    return all;
  }

  ScalingRow row(const CompileOptions& options) {
    ScalingRow row = row_of(options.world, options.accumulation);
    const Result<Plan> plan = planned(options, row.why);
    Status predicted = plan.ok() ? predict(*plan, row) : plan.status();
    if (!predicted.ok()) row.why = std::move(predicted);
    return row;
  }

  // As the plan's passes planned, if that keeps the budget; else as compile() makes it; else above
  // the budget, and `why` says so.
  Result<Plan> planned(const CompileOptions& options, Status& why) {
    const search::PlannedMemory& budget = options.passes.memory();
    if (planned_) {
      Result<Plan> plan = regardless(options, *planned_);
      if (!plan.ok() || !budget || device_memory(*plan) <= *budget) return plan;
    }
    CompileRequest one = compile_;
    one.options = options;
    Result<CompileResult> made = compile(one, model_, watch_);
    if (made.ok()) return std::move(made->plan);
    if (made.status().kind() != ErrorKind::OutOfMemory || !budget) return made.status();
    why = made.status();
    Result<Plan> above = regardless(options, planned_.value_or(budget));
    // If the device's budget is kept, it is another space's that is not.
    return above.ok() && device_memory(*above) <= *budget ? Result<Plan>(why) : std::move(above);
  }

  Result<Plan> regardless(const CompileOptions& options, const search::PlannedMemory& planned) {
    Result<Plan> plan = compile_planned(model_.step, options, costs_.model(), planned);
    watch_.lap("as planned");
    return plan;
  }

  Status predict(const Plan& plan, ScalingRow& row) const {
    sim::WhatIf what_if;
    what_if.link_per_second = request_.link_per_second;
    DC_ASSIGN_OR_RETURN(const sim::Simulated run, sim::simulate(plan, costs_.model(), what_if));
    row.step = base::Nanos{run.prediction.step_ns};
    row.exposed = run.exposed;
    row.memory = run.arena;
    return {};
  }

  const ScalingRequest& request_;
  const CompileRequest compile_;
  const std::optional<search::PlannedMemory> planned_;
  const cost::Costs costs_;
  Stopwatch& watch_;
  Model model_;
};

}  // namespace

double ScalingRow::micro_batches_per_second() const {
  if (step.v == 0) return 0;
  return static_cast<double>(world) * accumulation * 1e9 / static_cast<double>(step.v);
}

Result<Scaling> scaling(const ScalingRequest& request, Stopwatch& watch, const RowDone& done) {
  DC_ASSIGN_OR_RETURN(Decided decided, decide(request));
  return ScalingRun(request, std::move(decided), watch).run(done);
}

}  // namespace dc::driver
