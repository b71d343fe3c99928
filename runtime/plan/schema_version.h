// The version of schemas/plan.fbs that this build writes and reads; rules in schemas/README.md.
#pragma once

#include <cstdint>

namespace dc::runtime::plan {

inline constexpr uint16_t kSchemaMajor = 3;
inline constexpr uint16_t kSchemaMinor = 2;

}  // namespace dc::runtime::plan
