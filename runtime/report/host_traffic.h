// What the ranks of one host send to other hosts. Not for other folders.
#pragma once

#include <cstdint>

#include "runtime/plan/plan.h"

namespace dc::runtime::report {

// Bytes per step from the first host, which sends most, by all its ranks; 0 for plans whose mesh
// has no axis of hosts.
int64_t sent_across_hosts(const plan::Plan& plan);

}  // namespace dc::runtime::report
