// What ranks read of each other's arenas where they can.
#pragma once

#include <vector>

#include "runtime/plan/plan.h"
#include "src/base/byte_range.h"

namespace dc::runtime::plan {

// The bytes of the device arena that collectives read at a peer: what they gather or sum, and the
// results of all_reduce. Of all ranks, so that all have the same. In the form of base::merged().
std::vector<base::ByteRange> peer_reads(const Plan& plan);

}  // namespace dc::runtime::plan
