// Measuring what a model's step needs on the ranks that will run it, on their devices, as `dcc
// profile` does it: kernels, collectives and copies.
#pragma once

#include <string>

#include "runtime/comm/rendezvous.h"
#include "runtime/measure/measure.h"
#include "src/base/measurements.h"
#include "src/base/status.h"
#include "src/ir/step.h"

namespace dc::driver {

struct ProfileRequest {
  std::string offload_directory;  // empty: copies to disk are not measured
  int threads = 1;                // per rank
  int ranks_per_host = 0;         // 0: unknown; divides the number of ranks
  // Fused kernels to measure alone beyond those of the default chain, drawn at random from the
  // model's graph: samples to learn the time of others from. Fewer if the model does not have so
  // many. On CPUs only.
  int fusions = 0;
  // Of a GPU that this rank alone uses; null: what is taken beyond arenas is not measured.
  runtime::measure::MemoryGauge* gauge = nullptr;
};

// Collective: every rank of `job` calls it with the same step. Kernels and collectives are figures
// of the slowest rank, copies are figures of the calling rank. All fields are filled.
base::Result<base::Measurements> measure(const ir::Step& step, const ProfileRequest& request,
                                         const runtime::comm::LaunchInfo& launch,
                                         runtime::comm::ProcessGroup& job,
                                         const runtime::measure::Progress& progress);

}  // namespace dc::driver
