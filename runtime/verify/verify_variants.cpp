// Level 2, variants: what runs between two steps shares no program with the step, and an evaluation
// leaves the state as it found it.
#include <algorithm>
#include <set>

#include "runtime/plan/bad_plan.h"
#include "runtime/plan/describe.h"
#include "runtime/plan/names.h"
#include "runtime/verify/checks.h"

namespace dc::runtime::verify {
namespace {

using base::Status;

std::set<int32_t> programs_of(const std::vector<plan::ProgramRun>& runs) {
  std::set<int32_t> programs;
  for (const plan::ProgramRun& run : runs) programs.insert(run.program);
  return programs;
}

const plan::Slice& slice_of_tensor(const plan::Plan& plan, int32_t tensor) {
  return plan.slices[static_cast<size_t>(plan.tensors[static_cast<size_t>(tensor)].slice)];
}

Status check_writes(const plan::Plan& plan, int32_t program) {
  const std::vector<plan::Instruction>& list =
      plan.programs[static_cast<size_t>(program)].instructions;
  for (size_t i = 0; i < list.size(); ++i) {
    for (const int32_t tensor : list[i].writes) {
      if (slice_of_tensor(plan, tensor).program >= 0 || tensor == plan.loss_sum) continue;
      return plan::bad_plan(
          "DC3242", plan::describe_instruction(plan, program, static_cast<int32_t>(i)) +
                        " writes " + plan::describe_tensor(plan, tensor) +
                        ", but an evaluation may write nothing that outlives it except loss_sum");
    }
  }
  return {};
}

Status check_evaluation(const plan::Plan& plan, const plan::Variant& variant) {
  const std::set<int32_t> programs = programs_of(variant.step);
  for (const int32_t program : programs_of(plan.step)) {
    if (!programs.contains(program)) continue;
    return plan::bad_plan("DC3242", "the evaluation runs program '" +
                                        plan.programs[static_cast<size_t>(program)].name +
                                        "', which is the step's");
  }
  for (const plan::Input& input : variant.inputs) {
    const int32_t owner = slice_of_tensor(plan, input.tensor).program;
    if (programs.size() == 1 && programs.contains(owner)) continue;
    return plan::bad_plan(
        "DC3242",
        "input '" + input.name + "' of the evaluation does not lie in memory of its one program");
  }
  for (const int32_t program : programs) DC_RETURN_IF_ERROR(check_writes(plan, program));
  return {};
}

}  // namespace

Status check_variants(const plan::Plan& plan) {
  std::set<plan::Purpose> purposes;
  for (const plan::Variant& variant : plan.variants) {
    const std::string purpose(plan::name(variant.purpose));
    if (variant.purpose == plan::Purpose::Train) {
      return plan::bad_plan("DC3242",
                            "it has a variant for '" + purpose + "', which this version lacks");
    }
    if (!purposes.insert(variant.purpose).second) {
      return plan::bad_plan("DC3242", "it has two variants for '" + purpose + "'");
    }
    DC_RETURN_IF_ERROR(check_evaluation(plan, variant));
  }
  return {};
}

}  // namespace dc::runtime::verify
