// Level 1 of verification: every id in its table, every count sane. decode() asks it, so that what
// it returns can be shown without reading out of bounds.
#pragma once

#include <cstdint>

#include "runtime/plan/plan.h"
#include "src/base/status.h"

namespace dc::runtime::plan {

// Bytes of an arena. Far above a rank's memory; the arenas of all ranks of a host still add up in
// 64 bits.
inline constexpr int64_t kMaxArena = int64_t{1} << 48;

base::Status check_structure(const Plan& plan);

}  // namespace dc::runtime::plan
