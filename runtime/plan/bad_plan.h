// How decoding and verification say that a plan is bad: one sentence that names the part, with the
// cure.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace dc::runtime::plan {

inline constexpr const char* kCure = "; recompile the model with this dcc";

inline base::Status bad_plan(const char* code, const std::string& what) {
  return base::Status(base::ErrorKind::BadInput, code, "bad plan: " + what + kCure);
}

}  // namespace dc::runtime::plan
