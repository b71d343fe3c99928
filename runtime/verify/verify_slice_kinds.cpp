// Level 2: what a slice is said to be for agrees with the state, the inputs and the scratch that
// lie in it.
#include "runtime/plan/bad_plan.h"
#include "runtime/plan/describe.h"
#include "runtime/plan/names.h"
#include "runtime/plan/state_entries.h"
#include "runtime/verify/checks.h"

namespace dc::runtime::plan {
namespace {

using base::Status;

Status expect_kind(const Plan& plan, int32_t slice, SliceKind wanted, const std::string& user) {
  const SliceKind kind = plan.slices[static_cast<size_t>(slice)].kind;
  if (kind == wanted) return {};
  return bad_plan("DC3209", describe_slice(plan, slice) + " is for " + std::string(name(kind)) +
                                ", but holds " + user);
}

int32_t slice_of(const Plan& plan, int32_t tensor) {
  return plan.tensors[static_cast<size_t>(tensor)].slice;
}

}  // namespace

Status check_slice_kinds(const Plan& plan) {
  std::vector<Input> inputs = plan.inputs;
  for (const Variant& variant : plan.variants) {
    inputs.insert(inputs.end(), variant.inputs.begin(), variant.inputs.end());
  }
  for (const StateEntry& entry : plan.state) {
    DC_RETURN_IF_ERROR(expect_kind(plan, slice_of(plan, entry.tensor), slice_kind(entry.role),
                                   "state '" + entry.name + "'"));
  }
  for (const Input& input : inputs) {
    DC_RETURN_IF_ERROR(expect_kind(plan, slice_of(plan, input.tensor), SliceKind::Inputs,
                                   "input '" + input.name + "'"));
  }
  for (const Program& program : plan.programs) {
    for (const Instruction& in : program.instructions) {
      if (in.scratch < 0) continue;
      DC_RETURN_IF_ERROR(
          expect_kind(plan, in.scratch, SliceKind::Scratch, "the workspace of " + in.op));
    }
  }
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const int32_t slice = plan.tensors[i].slice;
    if (plan.slices[static_cast<size_t>(slice)].kind != SliceKind::Scratch) continue;
    return bad_plan("DC3209", describe_slice(plan, slice) + " is for scratch, but holds " +
                                  describe_tensor(plan, static_cast<int32_t>(i)));
  }
  return {};
}

}  // namespace dc::runtime::plan
