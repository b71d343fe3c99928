// Names of the plan's enums, as text dumps and messages spell them.
#pragma once

#include <string_view>

#include "runtime/plan/plan.h"

namespace dc::runtime::plan {

std::string_view name(Space value);
std::string_view name(SliceKind value);
std::string_view name(ArgKind value);
std::string_view name(InstructionKind value);
std::string_view name(CollectiveKind value);
std::string_view name(InitKind value);
std::string_view name(StateSource value);
std::string_view name(StateRole value);
std::string_view name(Spread value);
std::string_view name(InputRole value);
std::string_view name(Purpose value);
std::string_view name(Phase value);
std::string_view name(OptimizerKind value);
std::string_view name(ScheduleKind value);

}  // namespace dc::runtime::plan
