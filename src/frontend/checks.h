// What cannot be compiled, found before anything is built: each refusal names the reason and the
// cure.
#pragma once

#include "src/base/status.h"
#include "src/frontend/raw_model.h"

namespace dc::frontend {

// Before dims are bound: no gradients; shapes or operators that depend on data.
base::Status check_exported(const RawModel& model);
// The same of an evaluation: a loss and nothing else.
base::Status check_evaluation(const RawModel& model);

// After that: unsupported operators, arguments and types (all of them at once); attention that was
// decomposed wrongly.
base::Status check_model(const RawModel& model);

// The operator without "torch.ops.": "aten.mm.default".
std::string_view overload_of(std::string_view target);
inline constexpr std::string_view kGetItem = "_operator.getitem";

}  // namespace dc::frontend
