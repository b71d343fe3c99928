// What a profile says about where it was measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/base/device_kind.h"

namespace dc::base {

// As its driver describes it.
struct GpuIdentity {
  std::string name, compute_capability;  // "NVIDIA H100 80GB HBM3", "9.0"
  std::string driver;                    // the newest CUDA that it runs: "13.0"
  int32_t multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t clock_khz = 0, memory_clock_khz = 0;  // the highest; 0: it does not say
  // What a process took of its memory beyond the plan's arena; 0: unknown.
  int64_t library_bytes = 0;
  bool operator==(const GpuIdentity&) const = default;
};
struct MachineIdentity {
  std::string cpu, software, communicator, launcher;
  int32_t cores = 0, ranks = 0, threads = 0;
  DeviceKind device = DeviceKind::Cpu;  // that the kernels ran on
  int32_t ranks_per_host = 0;           // 0: unknown, or not the same everywhere
  std::optional<GpuIdentity> gpu{};     // of rank 0, where the device is one
};

}  // namespace dc::base
