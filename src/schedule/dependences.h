// What each node of a program must follow, in any pass that moves it: the writers of what it reads,
// the readers of what it writes, and of collectives under way both halves.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/time_axis.h"

namespace dc::schedule {

// By position: the earlier positions it must follow, perhaps with repetitions.
using Dependences = std::vector<std::vector<int32_t>>;
Dependences dependences(const TimeAxis& axis);

}  // namespace dc::schedule
