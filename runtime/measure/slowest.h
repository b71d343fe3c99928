// The slowest rank's figures: what a step waits for. Private to this folder.
#pragma once

#include <vector>

#include "runtime/comm/communicator.h"
#include "src/base/measurements.h"
#include "src/base/status.h"

namespace dc::runtime::measure {

// Collective. Replaces every row by that of the rank whose median is the largest. Rows are in the
// same order on all ranks.
base::Status keep_slowest(std::vector<base::Timing>& rows, comm::Communicator& control);

}  // namespace dc::runtime::measure
