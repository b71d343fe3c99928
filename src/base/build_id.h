// Identity of this build of the compiler: version and a digest of the sources, the same for the
// same sources on any host.
#pragma once

#include <string_view>

namespace dc::base {

std::string_view build_id();  // "dcc 0.1.0 (sources 3f2a...)"

}  // namespace dc::base
