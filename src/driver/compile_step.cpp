#include "src/driver/compile_step.h"

#include <algorithm>
#include <set>

#include "runtime/plan/file.h"
#include "runtime/verify/verify.h"
#include "src/base/build_id.h"
#include "src/base/sha256.h"
#include "src/base/text.h"
#include "src/driver/least_budget.h"
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

// What is lowered, and what there is to say about the choice.
struct Choice {
  passes::Chain chain;
  passes::Options options;
  std::vector<passes::Remark> remarks;
  std::vector<std::string> refused;
  bool cut_short = false;
};

class Compiler {
 public:
  Compiler(const ir::Step& step, const CompileOptions& options, const cost::CostModel& cost,
           const PartDone& done, const OutOfTime& out_of_time)
      : step_(step), options_(options), cost_(cost), done_(done), out_of_time_(out_of_time) {}

  // Bytes that the last plan above the device's budget needed there; 0 if there was none.
  int64_t need() const { return need_; }

  // Whether run() would find the budgets kept.
  bool fits() {
    if (!searches()) return run().ok();
    const auto found = search::find_best(step_, options_.passes, cost_,
                                         {options_.search_effort, out_of_time_, {}, true});
    return found.ok() && found->fits;
  }

  Result<Plan> run() {
    if (!searches()) {
      Choice choice{{}, options_.passes, {}, {}, false};
      DC_ASSIGN_OR_RETURN(choice.chain, options_.own_passes.empty()
                                            ? search::find_chain(options_.chain)
                                            : own_chain(options_));
      return lower(std::move(choice));
    }
    // The chain that the search chose may still end in an internal error when it is lowered. The
    // search then runs again without that chain.
    std::set<std::string> left_out;
    std::vector<std::string> refused;
    for (;;) {
      DC_ASSIGN_OR_RETURN(Choice choice, search(left_out));
      for (const std::string& one : refused) choice.refused.push_back(one);
      const std::string chain = passes::print(choice.chain);
      Result<Plan> plan = lower(std::move(choice));
      if (plan.ok() || plan.status().kind() != ErrorKind::Internal ||
          left_out.size() >= kMostLeftOut)
        return plan;
      left_out.insert(chain);
      refused.push_back(chain + ": " + plan.status().code() + " " + plan.status().sentence());
    }
  }

 private:
  static constexpr size_t kMostLeftOut = 8;

  bool searches() const { return options_.own_passes.empty() && options_.chain == "auto"; }

  void part_done(const char* part) const {
    if (done_) done_(part);
  }

  Result<Choice> search(const std::set<std::string>& left_out) const {
    DC_ASSIGN_OR_RETURN(search::SearchResult found,
                        search::find_best(step_, options_.passes, cost_,
                                          {options_.search_effort, out_of_time_, left_out, false}));
    part_done("search");
    return Choice{found.chain,
                  found.options,
                  {search::describe(found)},
                  std::move(found.refused),
                  found.cut_short};
  }

  Result<Plan> lower(Choice choice) {
    ir::Step step = step_;
    passes::PassContext context{cost_, choice.options, choice.remarks};
    base::Result<passes::Change> change =
        passes::run_passes(step, choice.chain, context, [&](const passes::Pass& pass) {
          part_done(pass.gives == ir::Stage::Allocated ? "layout" : "passes");
        });
    if (!change.ok()) {
      const bool is_over =
          options_.passes.memory() && step.arena_bytes > options_.passes.memory()->v;
      if (change.status().kind() == ErrorKind::OutOfMemory) need_ = is_over ? step.arena_bytes : 0;
      return std::move(change).status().add_context("in chain " + passes::print(choice.chain));
    }
    std::optional<ir::Step> evaluation;
    if (step.evaluation) {
      DC_ASSIGN_OR_RETURN(evaluation, passes::lower_evaluation(step, context));
      part_done("evaluation");
    }
    plan::EmitOptions emit_options;
    if (evaluation) emit_options.evaluation = &*evaluation;
    emit_options.device = options_.device;
    emit_options.threads = options_.threads;
    emit_options.chain = options_.own_passes.empty() ? options_.chain : passes::print(choice.chain);
    emit_options.budgets = options_.passes.budgets;
    DC_ASSIGN_OR_RETURN(Plan plan, plan::emit(step, emit_options, cost_));
    part_done("emit");
    if (const Status found = runtime::verify::verify_meaning(plan); !found.ok()) {
      return own_fault(found);
    }
    part_done("verify");
    plan.options = options_.canonical();
    plan.options_digest = base::sha256_hex(plan.options);
    plan.compiler = std::string(base::build_id());
    plan.passes = passes::print(choice.chain);
    plan.remarks = std::move(choice.remarks);
    if (choice.cut_short) plan.notes.emplace_back(kCutShort);
    for (const std::string& one : choice.refused) plan.notes.push_back(kLeftOut + one);
    return plan;
  }

  const ir::Step& step_;
  const CompileOptions& options_;
  const cost::CostModel& cost_;
  const PartDone& done_;
  const OutOfTime& out_of_time_;
  int64_t need_ = 0;
};

// Says what the least budget is that works; `over` is what compile says with the one that was
// given.
Status with_least_budget(const Status& over, const ir::Step& step, const CompileOptions& options,
                         const cost::CostModel& cost, int64_t need) {
  const int64_t given = options.passes.memory()->v;
  const std::optional<int64_t> least = least_budget(given, need, [&](int64_t budget) {
    CompileOptions other = options;
    other.passes.budgets[ir::Space::Device] = base::Bytes{budget};
    return Compiler(step, other, cost, {}, {}).fits();
  });
  if (!least) return over;
  Status status(over.kind(), over.code(),
                "no schedule keeps the budget of " + std::to_string(given) +
                    " bytes; the least that works is --memory " + std::to_string(*least) + " (" +
                    base::format_bytes(*least) + "). In the schedule that came nearest, " +
                    over.sentence());
  for (const std::string& line : over.context()) status.add_context(line);
  return status;
}

}  // namespace

Status own_fault(const Status& found) {
  Status fault(ErrorKind::Internal, found.code(), found.sentence());
  for (const std::string& line : found.context()) fault.add_context(line);
  fault.add_context("the plan just compiled did not pass its own verification");
  return fault;
}

Result<runtime::plan::Plan> compile_step(ir::Step step, const CompileOptions& options,
                                         const cost::CostModel& cost, const PartDone& done,
                                         const OutOfTime& out_of_time) {
  DC_RETURN_IF_ERROR(check(options));
  step.mesh.axes = {{"dp", options.world}};
  step.accumulation = options.accumulation;
  step.reduce_dtype = options.reduce_dtype;
  Compiler compiler(step, options, cost, done, out_of_time);
  Result<Plan> plan = compiler.run();
  // Against a clock the answer would be another one each time.
  if (plan.ok() || compiler.need() == 0 || out_of_time) return plan;
  return with_least_budget(plan.status(), step, options, cost, compiler.need());
}

}  // namespace dc::driver
