// What `dcc profile` and `dcrun --record-profile` measure: plain records that the runtime fills and
// src/profile reads and writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dc::base {

// Times are of the slowest rank; all ranks ran at once. median, fastest and spread (median absolute
// deviation) are nanoseconds.
struct Timing {
  int64_t median_ns = 0, fastest_ns = 0, spread_ns = 0;
  int32_t samples = 0;
};
struct KernelMeasurement {
  std::string key;       // KernelKey
  std::string provider;  // "aten", "native"
  Timing timing;
  int64_t scratch_bytes = 0;  // peak of the kernel's workspace
};
struct CollectiveMeasurement {
  std::string kind;  // "all_gather", "reduce_scatter", "all_reduce"
  int32_t ranks = 0;
  int64_t bytes = 0;  // of the whole value as it travels
  Timing timing;
};
struct CopyMeasurement {
  std::string from, to;  // memory spaces
  int64_t bytes = 0;
  Timing timing;
};
struct MachineIdentity {
  std::string cpu, software, communicator, launcher;
  int32_t cores = 0, ranks = 0, threads = 0;
};
struct Measurements {
  MachineIdentity machine;
  std::string model_digest;
  std::vector<KernelMeasurement> kernels;          // by key
  std::vector<CollectiveMeasurement> collectives;  // by kind, then bytes
  std::vector<CopyMeasurement> copies;
};

}  // namespace dc::base
