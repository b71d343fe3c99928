// Level 2, order: every access inside its slice's live range, every read after a write, every wait
// after a signal, be it in the run before.
#include <algorithm>
#include <vector>

#include "runtime/plan/bad_plan.h"
#include "runtime/plan/describe.h"
#include "runtime/verify/checks.h"

namespace dc::runtime::verify {
namespace {

using base::Status;

class OrderChecker {
 public:
  explicit OrderChecker(const plan::Plan& plan);
  Status run(int32_t program);

 private:
  // Slices the host fills before a program runs: state, step scalars, inputs.
  void filled_by_host(int32_t tensor) {
    if (tensor >= 0) by_host_[slice_of(tensor)] = true;
  }
  size_t slice_of(int32_t tensor) const {
    return static_cast<size_t>(plan_.tensors[static_cast<size_t>(tensor)].slice);
  }
  Status bad(const char* code, const std::string& what) const {
    return plan::bad_plan(code, plan::describe_instruction(plan_, program_, index_) + " " + what);
  }
  Status check_live(int32_t tensor, const char* verb) const;
  Status check_read(int32_t tensor) const;
  Status check_crossing(const plan::Instruction& wait) const;

  const plan::Plan& plan_;
  std::vector<bool> by_host_;
  std::vector<bool> carried_;        // persistent slices written so far in the step
  std::vector<int32_t> written_in_;  // transient slices: the run in which they were last written
  std::vector<int32_t> signals_;     // by event: how many instructions of the plan signal it
  int32_t run_ = 0;
  int32_t program_ = 0, index_ = 0;
};

OrderChecker::OrderChecker(const plan::Plan& plan)
    : plan_(plan),
      by_host_(plan.slices.size()),
      carried_(plan.slices.size()),
      written_in_(plan.slices.size(), 0),
      signals_(static_cast<size_t>(plan.events)) {
  for (const plan::Program& program : plan.programs) {
    for (const plan::Instruction& in : program.instructions) {
      if (in.kind == plan::InstructionKind::Signal) ++signals_[static_cast<size_t>(in.event)];
    }
  }
  for (const plan::StateEntry& entry : plan.state) filled_by_host(entry.tensor);
  for (const plan::Input& input : plan.inputs) filled_by_host(input.tensor);
  for (const plan::Variant& variant : plan.variants) {
    for (const plan::Input& input : variant.inputs) filled_by_host(input.tensor);
  }
  for (int32_t id : {plan.hyperparameters, plan.rng, plan.scalars, plan.table, plan.loss_sum}) {
    filled_by_host(id);
  }
}

Status OrderChecker::check_live(int32_t tensor, const char* verb) const {
  const plan::Slice& slice = plan_.slices[slice_of(tensor)];
  if (slice.program < 0) return {};
  if (slice.program == program_ && index_ >= slice.first && index_ <= slice.last) return {};
  return bad("DC3212", std::string(verb) + " " + plan::describe_tensor(plan_, tensor) +
                           " outside the live range of its slice (instructions " +
                           std::to_string(slice.first) + " to " + std::to_string(slice.last) +
                           " of program '" +
                           plan_.programs[static_cast<size_t>(slice.program)].name + "')");
}

Status OrderChecker::check_read(int32_t tensor) const {
  const size_t id = slice_of(tensor);
  const plan::Slice& slice = plan_.slices[id];
  if (by_host_[id] && (slice.program < 0 || slice.first == 0)) return {};
  if (slice.program < 0 ? carried_[id] : written_in_[id] == run_) return {};
  return bad("DC3213",
             "reads " + plan::describe_tensor(plan_, tensor) + " before anything wrote it");
}

Status OrderChecker::run(int32_t program) {
  ++run_;
  program_ = program;
  std::vector<bool> signalled(static_cast<size_t>(plan_.events));
  const auto& list = plan_.programs[static_cast<size_t>(program)].instructions;
  for (size_t i = 0; i < list.size(); ++i) {
    index_ = static_cast<int32_t>(i);
    const plan::Instruction& in = list[i];
    for (int32_t tensor : in.reads) {
      DC_RETURN_IF_ERROR(check_live(tensor, "reads"));
      DC_RETURN_IF_ERROR(check_read(tensor));
    }
    for (int32_t tensor : in.writes) {
      DC_RETURN_IF_ERROR(check_live(tensor, "writes"));
      carried_[slice_of(tensor)] = true;
      written_in_[slice_of(tensor)] = run_;
    }
    if (in.kind == plan::InstructionKind::Signal) signalled[static_cast<size_t>(in.event)] = true;
    if (in.kind == plan::InstructionKind::Wait && !signalled[static_cast<size_t>(in.event)])
      DC_RETURN_IF_ERROR(check_crossing(in));
  }
  return {};
}

// In the step's first program compute may wait for an event that the step's last program signalled
// in the previous step. Exactly one instruction of the plan signals such an event, so that every
// wait for it means the same.
Status OrderChecker::check_crossing(const plan::Instruction& wait) const {
  const auto signals_it = [&](const plan::Instruction& in) {
    return in.kind == plan::InstructionKind::Signal && in.event == wait.event;
  };
  const auto& last = plan_.programs[static_cast<size_t>(plan_.step.back().program)].instructions;
  const bool crosses = wait.stream == 0 && program_ == plan_.step.front().program &&
                       signals_[static_cast<size_t>(wait.event)] == 1 &&
                       std::any_of(last.begin(), last.end(), signals_it);
  if (crosses) return {};
  return bad("DC3219",
             "waits for event " + std::to_string(wait.event) + ", which nothing before it signals");
}

}  // namespace

// Follows the step's runs once each: a repetition finds at least what the first run found. Programs
// that the step does not run come last.
Status check_order(const plan::Plan& plan) {
  OrderChecker checker(plan);
  std::vector<bool> seen(plan.programs.size());
  for (const plan::ProgramRun& run : plan.step) {
    const auto index = static_cast<size_t>(run.program);
    if (seen[index]) continue;
    seen[index] = true;
    DC_RETURN_IF_ERROR(checker.run(run.program));
  }
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    if (!seen[i]) DC_RETURN_IF_ERROR(checker.run(static_cast<int32_t>(i)));
  }
  return {};
}

}  // namespace dc::runtime::verify
