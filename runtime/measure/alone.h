// Kernels timed by themselves, in one stated state of the caches, so that a kernel's description
// decides its time. In a step its neighbours do too (kernels.cpp).
#pragma once

#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/measure/measure.h"
#include "runtime/plan/plan.h"
#include "src/base/measurements.h"
#include "src/base/status.h"

namespace dc::runtime::measure {

// A plan of this kernel and nothing else. Every tensor that it reads or writes has memory of its
// own, in the order of arguments and results.
plan::Plan lone_kernel(const plan::Plan& plan, const plan::Instruction& kernel);

// Whatever one round holds is near in time, so that a spread over rounds says how well a figure
// can be repeated.
struct AloneOptions {
  int rounds = 7, cold_rounds = 3;  // each over all kernels
  int64_t round_ns = 1'000'000;     // of one kernel in one round, about
};
struct AloneTimings {
  base::Timing warm, cold;
};
// Times each lone kernel on every rank at once: warm with operands and results where its run before
// left them, which is a cache if they fit there; cold with all caches full of something else. A
// figure is the median of the rounds, each with its fastest run; the slowest rank's. Collective.
base::Result<std::vector<AloneTimings>> measure_alone(std::span<const plan::Plan> kernels,
                                                      comm::Communicator& control,
                                                      const AloneOptions& options,
                                                      const Progress& progress);

}  // namespace dc::runtime::measure
