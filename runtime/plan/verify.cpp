#include "runtime/plan/verify.h"

#include "runtime/plan/file.h"

namespace dc::runtime::plan {

// The order matters: each part relies on what the ones before it found to hold.
base::Status verify_meaning(const Plan& plan) {
  DC_RETURN_IF_ERROR(check_structure(plan));
  DC_RETURN_IF_ERROR(check_tensors(plan));
  DC_RETURN_IF_ERROR(check_overlap(plan));
  DC_RETURN_IF_ERROR(check_state(plan));
  DC_RETURN_IF_ERROR(check_instructions(plan));
  DC_RETURN_IF_ERROR(check_order(plan));
  DC_RETURN_IF_ERROR(check_slice_kinds(plan));
  return check_hazards(plan);
}

}  // namespace dc::runtime::plan
