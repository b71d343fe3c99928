// `dcrun --record-profile`: what the run measured, as a profile and next to the prediction.
#pragma once

#include <string>

#include "runtime/comm/rendezvous.h"
#include "runtime/exec/trace.h"
#include "runtime/plan/file.h"
#include "src/base/status.h"

namespace dc::cli {

// Collective. Rank 0 writes prof.json to `path` and prints the error of the plan's prediction in
// two parts: the bias, which compiling with this profile removes, and the residual, which remains.
base::Status record_profile(const std::string& path, const std::string& offload_dir,
                            const runtime::plan::Loaded& loaded,
                            const runtime::exec::TraceRecorder& recording,
                            runtime::comm::ProcessGroup& job,
                            const runtime::comm::LaunchInfo& launch);

}  // namespace dc::cli
