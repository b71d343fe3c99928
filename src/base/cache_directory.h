// Where programs keep what they can make again: compiled plans, compiled kernels.
#pragma once

#include <string>

namespace dc::base {

// $DCC_CACHE_DIR, else $XDG_CACHE_HOME/dcc, else $HOME/.cache/dcc, else empty (no cache).
std::string cache_directory();

}  // namespace dc::base
