// What cannot be compiled, found before anything is built: each refusal names the reason and the
// cure.
#pragma once

#include "src/base/status.h"
#include "src/frontend/raw_model.h"

namespace dc::frontend {

// In order: no gradients; shapes or operators that depend on data; unsupported operators, arguments
// and types (all of them at once); symbolic shapes; attention that was decomposed wrongly.
base::Status check_model(const RawModel& model);

// The operator without "torch.ops.": "aten.mm.default".
std::string_view overload_of(std::string_view target);
inline constexpr std::string_view kGetItem = "_operator.getitem";

}  // namespace dc::frontend
