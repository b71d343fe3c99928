// Identity of this build of the compiler: its version and a digest of the sources that can change
// a plan (src, schemas, runtime/plan). Equal sources give the same identity on every host.
#pragma once

#include <string_view>

namespace dc::base {

std::string_view build_id();  // "dcc 0.1.0 (sources 3f2a...)"

// Identity of this build of the runtime: a digest of all its sources. Ranks of other sources may
// compute other bits.
std::string_view runtime_id();  // "dcrun 0.1.0 (sources 81c0...)"

}  // namespace dc::base
