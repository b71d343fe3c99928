#include "src/driver/decisions.h"

#include <algorithm>
#include <string_view>

#include "runtime/verify/verify.h"
#include "src/base/archive/step_digest.h"
#include "src/plan/emit.h"

namespace dc::driver {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;
using passes::ReductionOrder;
using runtime::plan::Plan;

Status unknown_option(std::string_view word) {
  return Status(ErrorKind::Mismatch, "DC7033",
                "the plan was compiled with '" + std::string(word) +
                    "', which this version of dcc does not know; compile it again");
}

// "world=2", as CompileOptions::canonical() has it.
Status read_word(std::string_view word, CompileOptions& options) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos) return unknown_option(word);
  const std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
  const auto table = compile_options();
  const auto option = std::find_if(table.begin(), table.end(),
                                   [&](const CompileOption& one) { return one.name() == name; });
  if (option == table.end()) return unknown_option(word);
  // Some values are only what holds without the flag.
  if (value == option->print(CompileOptions())) return {};
  return option->read(value, options).ok() ? Status() : unknown_option(word);
}

Result<CompileOptions> read_options(std::string_view text) {
  CompileOptions options;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    DC_RETURN_IF_ERROR(read_word(text.substr(0, space), options));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return options;
}

// A search sums as find_best says, not by the stage of the chain that it finds.
ReductionOrder order_of(const CompileOptions& options, const Plan& plan) {
  const ReductionOrder asked = options.passes.reduction_order;
  if (options.chain != "auto" || !options.own_passes.empty()) return asked;
  const bool once = asked == ReductionOrder::Any
                        ? plan.sums.reductions == runtime::plan::ReductionOrder::PerStep
                        : asked == ReductionOrder::PerStep;
  return once ? ReductionOrder::PerStep : ReductionOrder::PerMicroBatch;
}

search::PlannedMemory planned_by(const Plan& plan, const search::PlannedMemory& budget) {
  for (const base::Remark& remark : plan.remarks) {
    if (remark.code != "passes-planned-for") continue;
    const auto bytes = remark.number("planned_bytes");
    return bytes ? search::PlannedMemory(base::Bytes{*bytes}) : search::PlannedMemory();
  }
  return budget;
}

}  // namespace

Result<Decisions> decisions_of(const Plan& plan) {
  DC_ASSIGN_OR_RETURN(CompileOptions options, read_options(plan.options));
  options.passes.reduction_order = order_of(options, plan);
  options.world = plan.world();
  options.accumulation = plan.accumulation;
  options.threads = plan.threads;
  options.chain = CompileOptions().chain;
  options.own_passes = plan.passes;
  options.start_from = {};
  options.fused_estimate = {};
  const search::PlannedMemory planned = planned_by(plan, options.passes.memory());
  return Decisions{std::move(options), planned};
}

std::string estimator_of(const Plan& plan) {
  const Result<CompileOptions> options = read_options(plan.options);
  if (!options.ok() || options->fused_estimate.choice == kFitted) return "";
  return options->fused_estimate.choice;
}

Result<EarlierPlan> read_earlier_plan(const std::string& file) {
  DC_ASSIGN_OR_RETURN(const runtime::plan::Loaded loaded, runtime::verify::load(file));
  DC_ASSIGN_OR_RETURN(const Decisions decided, decisions_of(loaded.plan));
  return EarlierPlan{file, loaded.digest, loaded.plan.passes, decided.planned};
}

Status check_is_of(const Plan& plan, const Model& model) {
  const ir::Step& step = model.step;
  if (plan.model_digest != step.model_digest) {
    return Status(ErrorKind::Mismatch, "DC7031",
                  "the plan was compiled from a model with digest " + plan.model_digest +
                      ", the one given has " + step.model_digest +
                      "; give the archive that it was compiled from, with the same --dim if its "
                      "dims are dynamic");
  }
  for (size_t i = 0; i < std::min(plan.step_digest.size(), step.step_digest.size()); ++i) {
    if (plan.step_digest[i] == step.step_digest[i]) continue;
    return Status(ErrorKind::Mismatch, "DC7031",
                  "the plan was compiled from an archive whose " +
                      std::string(base::archive::kStepParts[i]) + " have digest " +
                      plan.step_digest[i] + ", those of the one given have " + step.step_digest[i] +
                      "; give the archive that it was compiled from");
  }
  if (plan.optimizer == plan::emit_optimizer(step.optimizer)) return {};
  return Status(ErrorKind::Mismatch, "DC7032",
                "the plan was compiled for another optimizer than the archive describes; give the "
                "--config that it was compiled with");
}

}  // namespace dc::driver
