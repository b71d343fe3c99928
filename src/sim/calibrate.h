// Calibration: a profile corrected by one recorded step. Kernels and collectives measured one by
// one, in other minutes, add up to a step that is too short or too long by a common factor: the
// bias. What remains is the residual (runtime/measure/recorded.h tells them apart).
#pragma once

#include <memory>

#include "runtime/plan/plan.h"
#include "src/base/measurements.h"
#include "src/base/status.h"
#include "src/base/units.h"
#include "src/cost/fused_kernel.h"
#include "src/profile/profile_file.h"

namespace dc::sim {

struct StepParts {
  base::Nanos whole, compute;  // compute: what slows it next to collectives included
};

struct Calibration {
  base::Measurements measurements;  // all times of a kind multiplied by its factor
  double kernels = 1, collectives = 1;
  // Collectives' is 1 because compute hides them: the run does not tell how long they took.
  bool are_hidden = false;
  // No factors within their limits make the simulated step as long as the measured one, to 1 %.
  bool is_off = false;
  StepParts predicted, calibrated;  // of the plan, by the profile and by the measurements
};

// `step` must be of a run of `plan`. The factor of kernels, between 1/64 and 64, makes the
// simulated compute as long as the measured one, then that of collectives, between 1/8 and 8, the
// simulated step; in turns, as each changes the other's part. Every plan will do that waits for its
// collectives; copies are left as they are. `fused`: as of cost::Costs.
// BadInput (65), DC7104: no measurements in the profile, or a step without compute. As for simulate
// otherwise.
base::Result<Calibration> calibrate(const runtime::plan::Plan& plan,
                                    const profile::Profile& profile,
                                    const base::StepMeasurement& step,
                                    std::shared_ptr<const cost::FusedEstimator> fused = nullptr);

}  // namespace dc::sim
