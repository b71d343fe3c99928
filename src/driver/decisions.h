// What a plan decided, so that it can be decided again: for another world or accumulation of the
// same model (scaling.h), or as a start of another search (CompileOptions::start_from).
#pragma once

#include <string>

#include "runtime/plan/plan.h"
#include "src/driver/compile_options.h"
#include "src/driver/model.h"
#include "src/search/smallest_plan.h"

namespace dc::driver {

struct Decisions {
  CompileOptions options;  // the plan's own, its chain as text, the order of its sums by name
  search::PlannedMemory planned;  // what its passes planned for; its budget if nothing else
};

// Mismatch (76), DC7033: an option that this version does not know.
base::Result<Decisions> decisions_of(const runtime::plan::Plan& plan);

// Digest of the network that --fusion-estimator named when the plan was compiled; empty if none.
std::string estimator_of(const runtime::plan::Plan& plan);

// Verifies the plan. Errors: those of runtime::verify::load.
base::Result<EarlierPlan> read_earlier_plan(const std::string& file);

// Mismatch (76): DC7031, the plan is of another model, naming both digests; DC7032, its optimizer
// is not the one that archive and train.json describe.
base::Status check_is_of(const runtime::plan::Plan& plan, const Model& model);

}  // namespace dc::driver
