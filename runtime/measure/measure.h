// Measures what `dcc profile` writes down: kernels in the order of a real step, collectives over
// sizes, copies. On a GPU times are those of its streams, by timestamps.
//
// All ranks measure at once, because they share the memory bus. The figure of a kernel or a
// collective is the median of the slowest rank. The figure of a copy is the calling rank's own
// median.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/rendezvous.h"
#include "runtime/measure/memory_gauge.h"
#include "runtime/plan/plan.h"
#include "src/base/measurements.h"
#include "src/base/status.h"

namespace dc::runtime::measure {

// Told about every bit of progress: fraction of the whole in [0, 1].
using Progress = std::function<void(double fraction, std::string_view what)>;

// Whether every rank can use libtorch's plug-in; Mismatch (76) if one has that of another build.
// Collective.
base::Result<bool> has_libtorch(int threads, comm::Communicator& control);

// Workspace of every distinct kernel of the plan on a device; timings are left empty. Runs on this
// rank alone. Unsupported (81): the device has no kernel of an operator.
base::Result<std::vector<base::KernelMeasurement>> measure_scratch(const plan::Plan& plan,
                                                                   device::Device& device);

struct TimingOptions {
  int warmup = 2;                // replays of the step that are not counted
  int repeats = 9;               // replays that are
  MemoryGauge* gauge = nullptr;  // notes what is taken beyond the plan; null: nothing does
};
// Replays a one-rank plan on every rank at once and times each kernel where it stands, with the
// caches as its neighbours leave them. Returned as they came, with the workspace as `measured` has
// it. The plan runs on memory allocated here, of each rank's device; on a GPU as a graph if there
// is one rank, else kernel by kernel, as the steps of so many ranks do.
base::Result<std::vector<base::KernelMeasurement>> measure_kernels(
    const plan::Plan& plan, std::vector<base::KernelMeasurement> measured,
    comm::ProcessGroup& ranks, const TimingOptions& options, const Progress& progress);

// All-gather, reduce-scatter and all-reduce of f32 values from 4 KiB to `largest` bytes, in powers
// of four: alone, and while `compute_threads` threads of every rank, or its GPU on another stream,
// multiply matrices. All-gathers
// and reduce-scatters of 64 KiB to 16 MiB also at once, each on a stream and a communicator of its
// own. Among all ranks and, where 1 < ranks_per_host < world, inside hosts and across them.
// Collective.
struct CollectiveSweep {
  std::vector<base::CollectiveMeasurement> alone;
  std::vector<base::DuringComputeMeasurement> during_compute;
  std::vector<base::TogetherMeasurement> together;
};
base::Result<CollectiveSweep> measure_collectives(comm::ProcessGroup& job, int64_t largest,
                                                  int compute_threads, int ranks_per_host,
                                                  const Progress& progress);

// Between device and host, and between device and a file in `offload_dir` as `dcrun --offload-dir`
// makes it, unless that is empty: 4 KiB to 16 MiB in powers of four, on this rank alone. The file
// system may keep so little in memory; a disk that must write more can be slower. Nothing is left
// in the folder. CannotWrite (73): no file can be made there.
base::Result<std::vector<base::CopyMeasurement>> measure_copies(device::Device& device,
                                                                const std::string& offload_dir);

std::string cpu_name();  // "AMD EPYC ...", from the system

}  // namespace dc::runtime::measure
