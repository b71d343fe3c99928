#include "runtime/verify/verify.h"

#include <utility>

#include "runtime/plan/structure.h"
#include "runtime/verify/checks.h"

namespace dc::runtime::verify {

// The order matters: each part relies on what the ones before it found to hold.
base::Status verify_meaning(const plan::Plan& plan) {
  DC_RETURN_IF_ERROR(plan::check_structure(plan));
  DC_RETURN_IF_ERROR(check_tensors(plan));
  DC_RETURN_IF_ERROR(check_overlap(plan));
  DC_RETURN_IF_ERROR(check_state(plan));
  DC_RETURN_IF_ERROR(check_instructions(plan));
  DC_RETURN_IF_ERROR(check_order(plan));
  DC_RETURN_IF_ERROR(check_variants(plan));
  DC_RETURN_IF_ERROR(check_slice_kinds(plan));
  DC_RETURN_IF_ERROR(check_sums(plan));
  return check_hazards(plan);
}

base::Result<plan::Loaded> load(const std::string& path) {
  DC_ASSIGN_OR_RETURN(plan::Loaded loaded, plan::read(path));
  if (base::Status meaning = verify_meaning(loaded.plan); !meaning.ok())
    return std::move(meaning).add_context("in " + path);
  return loaded;
}

}  // namespace dc::runtime::verify
