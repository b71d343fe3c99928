// What `dcc profile` and `dcrun --record-profile` measure: plain records that the runtime fills and
// src/profile reads and writes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/collective_level.h"
#include "src/base/kernel_signature.h"
#include "src/base/machine_identity.h"

namespace dc::base {

// Times are of the slowest rank; all ranks ran at once. median, fastest and spread (median absolute
// deviation) are nanoseconds.
struct Timing {
  int64_t median_ns = 0, fastest_ns = 0, deviation_ns = 0;
  int32_t samples = 0;
};
struct KernelMeasurement {
  KernelSignature signature;  // says the provider too
  Timing timing;
  int64_t scratch_bytes = 0;  // peak of the kernel's workspace
};
// A fused kernel measured alone, with memory of its own: warm, with operands and results in the
// caches where the previous run left them, and cold, with none of them in a cache. So its signature
// determines the figures; in a step its neighbours do too.
struct AloneMeasurement {
  KernelSignature signature;
  Timing warm, cold;
};
struct CollectiveMeasurement {
  std::string kind;   // "all_gather", "reduce_scatter", "all_reduce"
  int32_t ranks = 0;  // of the group
  int64_t bytes = 0;  // of the whole value as it travels
  Timing timing;
  CollectiveLevel level = CollectiveLevel::World;
};
// The same collective while compute runs on its own stream of every rank.
struct DuringComputeMeasurement : CollectiveMeasurement {
  int64_t compute_permille = 1000;  // compute's time next to it, for a thousand alone
};
// The same collective while another of the same size is under way, on another communicator and
// stream, again and again.
struct TogetherMeasurement : CollectiveMeasurement {
  std::string other;  // its kind
};
struct CopyMeasurement {
  std::string from, to;  // memory spaces
  int64_t bytes = 0;
  Timing timing;
};
// What one rank of a machine does per second where no measurement says better.
struct MachineRates {
  int64_t f64_flops = 0, f32_flops = 0, half_flops = 0;  // matrix products; half: bf16 and f16
  int64_t memory_bytes = 0;                              // read and written by a kernel
  int64_t kernel_launch_ns = 0;
  int64_t link_bytes = 0;  // sent by one rank in a collective
  int64_t collective_latency_ns = 0;
  int64_t to_host_bytes = 0, from_host_bytes = 0, disk_bytes = 0;
  int64_t host_memory_bytes = 0;  // read and written by an update on the host; 0: unknown
};
// A step of the run that a profile was recorded in.
struct StepMeasurement {
  std::string plan_digest;  // of the plan that ran
  Timing whole;             // from where compute begins to where it begins again
  Timing compute;           // its part in which compute did not wait
};
// How a profile came about: by `dcc profile`, from a running step, put together from published
// figures, or from another profile by `dcc calibrate`.
enum class ProfileOrigin : uint8_t { Measured, Recorded, Synthetic, Calibrated };
// What was measured on purpose, over all kernels or sizes, not only as one step happened to need
// it.
struct Completeness {
  bool kernels = false, collectives = false, during_compute = false, copies = false;
};
struct Measurements {
  ProfileOrigin origin = ProfileOrigin::Measured;
  Completeness complete;
  MachineIdentity machine;
  std::string model_digest;
  std::vector<KernelMeasurement> kernels;                // one of each signature
  std::vector<AloneMeasurement> alone;                   // one of each signature
  std::vector<CollectiveMeasurement> collectives;        // by level, kind, bytes
  std::vector<DuringComputeMeasurement> during_compute;  // by level, kind, bytes
  std::vector<TogetherMeasurement> together;             // by level, kind, bytes
  std::vector<CopyMeasurement> copies;                   // by spaces, then bytes
  std::optional<MachineRates> rates;
  std::optional<StepMeasurement> step;  // of recorded profiles
};

}  // namespace dc::base
