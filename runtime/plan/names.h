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
std::string_view phase_name(uint8_t phase);
std::string_view optimizer_name(uint8_t kind);
std::string_view schedule_name(uint8_t schedule);

}  // namespace dc::runtime::plan
