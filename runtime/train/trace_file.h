// --trace: the records of all ranks in one Chrome/Perfetto JSON file.
#pragma once

#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/exec/trace.h"

namespace dc::runtime::train {

// What the trace says about itself, in "otherData".
struct TraceFacts {
  std::string plan_digest, plan_name, communicator;
};

// Collective. The ranks append their events, one after the other, to a temporary next to `path`, in
// a folder that their hosts share; rank 0 moves it into place, whole.
base::Status save_trace(const std::string& path, const exec::TraceRecorder& trace,
                        const TraceFacts& facts, comm::Communicator& control);

}  // namespace dc::runtime::train
