// What is trained, where it lies and by which rule: in the words of PyTorch and ZeRO.
#include <algorithm>
#include <cstdio>

#include "runtime/plan/mesh.h"
#include "runtime/plan/names.h"
#include "runtime/report/report.h"
#include "runtime/report/report_line.h"
#include "src/base/text.h"

namespace dc::runtime::report {
namespace {

using base::count_of;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

// Gradients are reduced in every micro-batch: only shards of their sums are kept between them.
bool reduces_each_micro_batch(const plan::Plan& plan) {
  for (const plan::ProgramRun& run : plan.step) {
    const plan::Program& program = plan.programs[static_cast<size_t>(run.program)];
    bool reduces = false;
    for (const plan::Instruction& in : program.instructions) {
      reduces =
          reduces || (in.kind == plan::InstructionKind::Collective && base::reduces(in.collective));
    }
    if (!reduces) return false;
  }
  return true;
}

// The stage of ZeRO (Rajbhandari et al., 2020) that holds the same things on each rank.
std::string stage(const plan::Plan& plan, const ParameterFacts& facts) {
  if (plan.world() == 1) return "";
  if (plan.mesh.size() > 1) return facts.sharded_state > 0 ? " (hierarchical, HSDP)" : " (as DDP)";
  if (facts.gathered == facts.count && facts.sharded_state > 0) return " (as ZeRO-3)";
  if (facts.gathered > 0) return "";
  if (facts.sharded_state == 0) return " (as DDP)";
  return reduces_each_micro_batch(plan) ? " (as ZeRO-2)" : " (as ZeRO-1)";
}

// Which ranks share a split value: all, or those along the last axis of the mesh, each other axis
// holding replicas.
std::string holders(const plan::Plan& plan) {
  if (plan.mesh.size() < 2) return "over " + count_of(plan.world(), "rank");
  const int32_t shards = plan.mesh.back().second;
  return "over the " + count_of(shards, "rank") + " of each of " +
         count_of(plan.world() / shards, plan.mesh.front().first);
}

std::string placement(const plan::Plan& plan, const ParameterFacts& facts) {
  const std::string ranks = holders(plan);
  std::string text;
  if (plan.world() == 1) {
    text = "everything on the one rank";
  } else {
    if (facts.gathered == 0) {
      text = "parameters whole on every rank";
    } else if (facts.resident == 0) {
      text = "parameters split " + ranks + " and gathered when used";
    } else {
      text = count_of(facts.resident, "parameter") + " whole on every rank, " +
             std::to_string(facts.gathered) + " split " + ranks + " and gathered when used";
    }
    text += facts.sharded_state == 0 ? ", optimizer state whole on every rank"
                                     : ", optimizer state split " + ranks;
  }
  return report_line("placement", text + stage(plan, facts));
}

// The ranks that a level of the sums adds up, and when.
std::string level(const plan::Plan& plan, size_t index) {
  const uint32_t axes = plan.sums.levels[index];
  const bool each = index == 0 && plan.sums.reductions == plan::ReductionOrder::PerMicroBatch;
  std::string text = "over " + std::to_string(plan::group_size(plan, axes)) + " ranks";
  if (plan.mesh.size() > 1) text += " along '" + plan::axes_text(plan, axes) + "'";
  if (plan.accumulation == 1) return text;
  return text + (each ? " in each micro-batch" : " once per step");
}

std::string sums(const plan::Plan& plan) {
  if (plan.world() == 1 || plan.sums.reductions == plan::ReductionOrder::Unknown) return "";
  std::string text;
  for (size_t i = 0; i < plan.sums.levels.size(); ++i)
    text += (i == 0 ? "" : ", then ") + level(plan, i);
  return report_line("sums", text + ", in rank order");
}

std::string schedule(const plan::Optimizer& o) {
  const std::string warmup = o.warmup_steps > 0 ? std::to_string(o.warmup_steps) + " warm-up" : "";
  if (o.schedule == plan::ScheduleKind::Constant)
    return warmup.empty() ? "constant rate" : warmup + " steps, then constant";
  const std::string steps = count_of(o.total_steps, "step");
  return std::string(plan::name(o.schedule)) + ", " + (warmup.empty() ? "" : warmup + " of ") +
         steps;
}

// A group may be of one parameter: how many sets of values there are but for the first one's.
int64_t groups_with_other_values(const plan::Optimizer& o) {
  std::vector<plan::OptimizerGroup> seen;
  for (plan::OptimizerGroup group : o.groups) {
    group.match.clear();
    if (std::ranges::find(seen, group) == seen.end()) seen.push_back(std::move(group));
  }
  return static_cast<int64_t>(seen.size()) - 1;
}

std::string optimizer(const plan::Optimizer& o) {
  std::string text(plan::name(o.kind));
  if (!o.groups.empty()) {
    const plan::OptimizerGroup& group = o.groups.front();
    text += " lr " + number(group.lr);
    if (group.weight_decay != 0) text += ", weight decay " + number(group.weight_decay);
    if (group.momentum != 0) text += ", momentum " + number(group.momentum);
    if (const int64_t others = groups_with_other_values(o); others > 0)
      text += ", " + count_of(others, "group") + " with other values";
  }
  text += o.clip ? ", clip " + number(o.clip_norm) : ", no clipping";
  return report_line("optimizer", text + ", " + schedule(o));
}

}  // namespace

std::string training_report(const plan::Plan& plan) {
  const ParameterFacts facts = parameter_facts(plan);
  std::string text = std::to_string(facts.count) + " with " + count_of(facts.elements, "element") +
                     " (" + base::format_bytes(facts.bytes) + "), ";
  text += facts.trainable_elements == facts.elements
              ? "all trainable"
              : std::to_string(facts.trainable_elements) + " trainable";
  return report_line("parameters", text) + placement(plan, facts) + sums(plan) +
         optimizer(plan.optimizer);
}

}  // namespace dc::runtime::report
