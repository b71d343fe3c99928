// The checker of layouts. Shares no code with the algorithms: it sweeps over time with the set of
// live byte ranges.
#pragma once

#include <span>

#include "src/base/status.h"
#include "src/layout/request.h"

namespace dc::layout {

// Internal error (DC7001..DC7003) naming the first offending requests: an offset that is negative,
// unaligned or ends above `layout.bytes`, or two requests that share both a position and a byte.
base::Status check(std::span<const Request> requests, const Layout& layout);

}  // namespace dc::layout
