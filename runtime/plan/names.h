// Names of the plan's enums, as text dumps and messages spell them.
#pragma once

#include <string_view>

#include "runtime/plan/plan.h"

namespace dc::runtime::plan {

using base::name;
std::string_view name(ArgKind value);
std::string_view name(InstructionKind value);
std::string_view name(StateSource value);
std::string_view name(Purpose value);
std::string_view name(ReductionOrder value);
std::string_view name(FigureOrigin value);

}  // namespace dc::runtime::plan
