// Where programs keep what they can make again: compiled plans, compiled kernels.
#pragma once

#include <string>
#include <string_view>

namespace dc::base {

// $DCC_CACHE_DIR, else $XDG_CACHE_HOME/dcc, else $HOME/.cache/dcc, else empty (no cache).
std::string cache_directory();

// Compiled kernels of GPUs are in this folder of it, files with this extension.
inline constexpr std::string_view kKernelFolder = "kernels", kKernelExtension = ".cubin";

// For who has read a file of the cache: what was used least recently is removed first.
void mark_used(const std::string& path);

}  // namespace dc::base
