// Work that consists of many independent parts, on the cores that this process may use.
#pragma once

#include <cstdint>
#include <functional>

#include "src/base/status.h"

namespace dc::base {

// Calls work(0) to work(count - 1), each once and in no order, from the calling thread and as many
// others as there are cores for, or as the system gives. Returns when all have ended: of those
// that failed or threw (as or_refused()), the status of the first by number.
Status on_all_cores(int64_t count, const std::function<Status(int64_t)>& work);

}  // namespace dc::base
