// The outputs of one command, next to each other.
#pragma once

#include <span>
#include <string>

#include "src/base/status.h"

namespace dc::base {

// Usage (64) if two of the outputs are one file: one would take the other's place. Empty ones do
// not count.
Status check_distinct(std::span<const std::string> outputs);

}  // namespace dc::base
