// Level 2: what a slice is said to be for agrees with the state, the inputs and the scratch that
// lie in it.
#include "runtime/plan/bad_plan.h"
#include "runtime/plan/describe.h"
#include "runtime/plan/names.h"
#include "runtime/plan/state_entries.h"
#include "runtime/verify/checks.h"

namespace dc::runtime::verify {
namespace {

using base::Status;

Status expect_kind(const plan::Plan& plan, int32_t slice, plan::SliceKind wanted,
                   const std::string& user) {
  const plan::SliceKind kind = plan.slices[static_cast<size_t>(slice)].kind;
  if (kind == wanted) return {};
  return plan::bad_plan("DC3209", plan::describe_slice(plan, slice) + " is for " +
                                      std::string(plan::name(kind)) + ", but holds " + user);
}

int32_t slice_of(const plan::Plan& plan, int32_t tensor) {
  return plan.tensors[static_cast<size_t>(tensor)].slice;
}

}  // namespace

Status check_slice_kinds(const plan::Plan& plan) {
  std::vector<plan::Input> inputs = plan.inputs;
  for (const plan::Variant& variant : plan.variants) {
    inputs.insert(inputs.end(), variant.inputs.begin(), variant.inputs.end());
  }
  for (const plan::StateEntry& entry : plan.state) {
    DC_RETURN_IF_ERROR(expect_kind(plan, slice_of(plan, entry.tensor), plan::slice_kind(entry.role),
                                   "state '" + entry.name + "'"));
  }
  for (const plan::Input& input : inputs) {
    DC_RETURN_IF_ERROR(expect_kind(plan, slice_of(plan, input.tensor), plan::SliceKind::Inputs,
                                   "input '" + input.name + "'"));
  }
  for (const plan::Program& program : plan.programs) {
    for (const plan::Instruction& in : program.instructions) {
      if (in.scratch < 0) continue;
      DC_RETURN_IF_ERROR(
          expect_kind(plan, in.scratch, plan::SliceKind::Scratch, "the workspace of " + in.op));
    }
  }
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const int32_t slice = plan.tensors[i].slice;
    if (plan.slices[static_cast<size_t>(slice)].kind != plan::SliceKind::Scratch) continue;
    return plan::bad_plan("DC3209", plan::describe_slice(plan, slice) +
                                        " is for scratch, but holds " +
                                        plan::describe_tensor(plan, static_cast<int32_t>(i)));
  }
  return {};
}

}  // namespace dc::runtime::verify
