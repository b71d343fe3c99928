// Identity of this build of the compiler: its version and a digest of the sources that can change
// a plan (src, schemas, runtime/plan). Equal sources give the same identity on every host.
#pragma once

#include <string_view>

namespace dc::base {

std::string_view build_id();  // "dcc 0.1.0 (sources 3f2a...)"

}  // namespace dc::base
