// Level 1 of verification: every id in its table, every count sane. decode() asks it, so that what
// it returns can be shown without reading out of bounds.
#pragma once

#include "runtime/plan/plan.h"
#include "src/base/status.h"

namespace dc::runtime::plan {

base::Status check_structure(const Plan& plan);

}  // namespace dc::runtime::plan
