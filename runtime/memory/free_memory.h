// How much memory this process may still take: what the host has available (swap included), less
// where a control group (version 1 or 2) leaves less. Page cache that can be given back counts as
// free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dc::runtime::memory {

// Bytes; nothing if the system does not say. `root`: where proc and sys are, for tests.
std::optional<int64_t> free_memory(const std::string& root = "");

}  // namespace dc::runtime::memory
