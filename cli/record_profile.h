// `dcrun --record-profile`: what the run measured, as a profile and next to the prediction.
#pragma once

#include <string>

#include "runtime/comm/rendezvous.h"
#include "runtime/plan/file.h"
#include "runtime/train/train.h"
#include "src/base/status.h"

namespace dc::cli {

// Collective. Rank 0 writes prof.json to `path` and prints the error of the plan's prediction in
// two parts: the bias, which compiling with this profile removes, and the residual, which remains.
// A run that was stopped too early for a profile, or had too few steps left, makes none, and rank 0
// says so; that is no failure. A failure says where the run's state is.
base::Status record_profile(const std::string& path, const std::string& offload_dir,
                            const runtime::plan::Loaded& loaded,
                            const runtime::train::Outcome& outcome,
                            runtime::comm::ProcessGroup& job,
                            const runtime::comm::LaunchInfo& launch);

}  // namespace dc::cli
